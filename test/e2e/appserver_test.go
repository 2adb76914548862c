//go:build envtest

package e2e

import (
	"errors"
	"fmt"
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
