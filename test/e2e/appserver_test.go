//go:build envtest

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// startApp starts a real App Server that ends with the test.
func startApp(t *testing.T) *appservertest.Server {
	t.Helper()
	install := filepath.Join(tools.Root(), ".tools", "letta")
	if err := appservertest.Installed(install); err != nil {
		t.Skipf("SKIPPED, nothing was tested: %v", err)
	}
	app, err := appservertest.Start(t.Context(), stack.AppServerOptions(install, t.TempDir(), ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(app.Stop)
	return app
}

// TestAppServer runs the thread through the controller on the real App Server:
// undisturbed, with the controller killed in mid-turn, and with the App Server
// killed in mid-turn and started again. A turn that was cut off is found by
// its id and asked about, so that no word is given twice.
func TestAppServer(t *testing.T) {
	app := startApp(t)
	tests := map[string]func(t *testing.T, w *world){
		"Undisturbed": func(*testing.T, *world) {},
		"ControllerKilled": func(_ *testing.T, w *world) {
			w.ctl.Kill()
			w.ctl = nil
			w.startController()
		},
		"ServerKilled": func(t *testing.T, _ *world) {
			t.Helper()
			app.Kill()
			if err := app.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, disturb := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorldOn(t, app, nil)
			w.startController()
			first := w.session(w.desk, w.cwd, uuid.NewString())
			w.turn(first, "Note for the team: "+convention, "Understood.")
			w.processed()

			before := app.Model.Turns()
			release := app.Model.Hold()
			defer release()
			w.turn(first, "What comes next?", "The harbour.")
			w.must(stack.Eventually(t.Context(), within, func() error {
				if app.Model.Turns() == before {
					return errors.New("the model was not asked")
				}
				return nil
			}))
			disturb(t, w)
			release()
			w.must(first.End(t.Context()))
			w.processed()

			second := w.session(w.desk, w.cwd, uuid.NewString())
			w.turn(second, "Should the tide tables be converted to local time before they are stored?", "Rather when they are read.")
			w.processed()
			told := w.askUntilTold(second, func() {})
			if !strings.Contains(told.Context, convention) {
				t.Errorf("the second session was told %q", told.Context)
			}
			w.check()
			w.must(w.blockHolds("conventions", convention))
		})
	}
}

// TestScrubOnTheAppServer: a lead takes a text out with the command, and it says
// what the server keeps. controllers/session searches the server's files.
func TestScrubOnTheAppServer(t *testing.T) {
	const secret = "the lamp room code is heron-nine"
	app := startApp(t)
	w := newWorldOn(t, app, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "Careful: "+secret+".", "Noted.")
	w.processed()
	w.must(w.blockHolds("pitfalls", secret))

	lead, err := parts.Cluster.Kubeconfig(parts.Cluster.User("grace"), w.team.Namespace)
	w.must(err)
	file := filepath.Join(t.TempDir(), "lead")
	w.must(os.WriteFile(file, lead, 0o600))
	scrub := func(flags ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(parts.Dir, "bin", "undersong"), append([]string{"admin", "scrub"}, flags...)...)
		cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + file}
		cmd.Stdin = strings.NewReader(secret + "\n")
		out, err := cmd.CombinedOutput()
		t.Logf("$ undersong admin scrub %s\n%s", strings.Join(flags, " "), out)
		w.must(err)
		return string(out)
	}
	says := func(said string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(said, word) {
				t.Errorf("it does not say %q", word)
			}
		}
		if strings.Contains(said, secret) {
			t.Error("it says the text")
		}
	}
	history, backups := "revisions of the block pitfalls of the agent agent-local-", "backups of etcd, of the bucket, of Letta"
	says(scrub(), "Nothing is changed.", history, backups)
	says(scrub("--yes"), "TAKEN OUT OF", "blocks at Letta                      5           1          1", history, "which this back end cannot delete; nobody goes on with it", backups)
	w.must(w.blockHolds("pitfalls", "[redacted:scrub-"))
	says(scrub(), history, backups)

	w.turn(s, "As I said, "+secret+", and the sea is calm.", "It is.")
	w.must(s.End(t.Context()))
	w.processed()
	found, err := stack.AppServerConversations(t.Context(), app)
	w.must(err)
	var told int
	for _, c := range found {
		for _, m := range c.Messages {
			if strings.Contains(m.Text, "the sea is calm") {
				told++
				if strings.Contains(m.Text, secret) {
					t.Error("it came back with what was sent again")
				}
			}
		}
	}
	if told != 1 {
		t.Errorf("the rest of the words was told %d times", told)
	}
}

// blockHolds waits for a MemoryBlock whose value holds a text.
func (w *world) blockHolds(label, text string) error {
	return stack.Eventually(w.t.Context(), within, func() error {
		var blocks v1alpha1.MemoryBlockList
		if err := parts.Admin.List(w.t.Context(), &blocks, client.InNamespace(w.team.Namespace)); err != nil {
			return err
		}
		for _, b := range blocks.Items {
			if b.Spec.Label == label && strings.Contains(b.Status.Value, text) {
				return nil
			}
		}
		return fmt.Errorf("no MemoryBlock %s holds %q", label, text)
	})
}
