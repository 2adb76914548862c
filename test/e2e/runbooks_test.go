//go:build envtest

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/runbook"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// book is a page that is followed, with a lead's kubeconfig, on ada's computer.
type book struct {
	*world
	env  []string
	fill map[string]string
}

// run runs one line of a page.
func (b *book) run(line string) string {
	b.t.Helper()
	line = runbook.Fill(line, b.fill)
	cmd := exec.CommandContext(b.t.Context(), "bash", "-euo", "pipefail", "-c", line)
	cmd.Env, cmd.Dir = b.env, b.desk.Home
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	b.t.Logf("$ %s\n%s", line, out)
	return string(out)
}

// all runs all lines under a heading, and returns what they said.
func (b *book) all(page, heading string) string {
	b.t.Helper()
	var said strings.Builder
	lines, err := runbook.Commands(page, "## "+heading)
	b.must(err)
	for _, line := range lines {
		said.WriteString(b.run(line))
	}
	return said.String()
}

// alpha is the team of the pages.
func alpha(t *testing.T) *book {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t}
	w.must(parts.Cluster.Team(ctx, "alpha", []string{"ada", "bob"}, []string{"grace"}))
	var err error
	keeper := parts.LettaServer()
	w.team, err = parts.Furnish(ctx, "alpha", "main", keeper)
	w.must(err)
	w.must(parts.Admin.Create(ctx, &v1alpha1.TeamMemory{
		ObjectMeta: metav1.ObjectMeta{Namespace: "alpha", Name: "main"},
		Spec: v1alpha1.TeamMemorySpec{
			Letta:   v1alpha1.Letta{Backend: keeper.Backend, BaseURL: keeper.URL, Insecure: v1alpha1.InsecureAllow, CredentialsSecretRef: &v1alpha1.LocalRef{Name: kube.LettaSecret}},
			Agent:   v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "alpha", Model: keeper.Model}},
			Store:   v1alpha1.Store{Endpoint: parts.S3.Endpoint, Insecure: v1alpha1.InsecureAllow, Bucket: w.team.Bucket, CredentialsSecretRef: v1alpha1.LocalRef{Name: kube.StoreSecret}},
			Capture: v1alpha1.Capture{Projects: v1alpha1.CaptureProjects{Include: []string{"git.example.com/lighthouse/**"}}},
		},
	}))
	w.desk = w.workstation("ada", "desk")
	w.cwd = w.project(w.desk)
	t.Cleanup(func() {
		w.stopController()
		if t.Failed() {
			w.explain()
		}
	})
	lead, err := parts.Cluster.Kubeconfig(parts.Cluster.User("grace"), "alpha")
	w.must(err)
	file := filepath.Join(t.TempDir(), "lead")
	w.must(os.WriteFile(file, lead, 0o600))
	return &book{world: w, fill: map[string]string{}, env: []string{
		"PATH=" + filepath.Join(parts.Dir, "bin") + ":" + filepath.Join(tools.Root(), ".tools", "bin") + ":/usr/bin:/bin",
		"HOME=" + w.desk.Home, "UNDERSONG_HOME=" + w.desk.State, "KUBECONFIG=" + file,
	}}
}

// memory is the TeamMemory as it is.
func (b *book) memory() *v1alpha1.TeamMemory {
	b.t.Helper()
	m := &v1alpha1.TeamMemory{}
	b.must(parts.Admin.Get(b.t.Context(), client.ObjectKey{Namespace: "alpha", Name: "main"}, m))
	return m
}

// learned is the project's block of a label.
func (b *book) learned(label string) *v1alpha1.MemoryBlock {
	b.t.Helper()
	block := &v1alpha1.MemoryBlock{}
	name := v1alpha1.MemoryBlockName("main", "git.example.com/lighthouse/lantern", label)
	b.must(parts.Admin.Get(b.t.Context(), client.ObjectKey{Namespace: "alpha", Name: name}, block))
	return block
}

// TestRunbooks follows docs/runbooks.md, and the end of docs/install.md, word by
// word.
func TestRunbooks(t *testing.T) {
	ctx := t.Context()
	b := alpha(t)
	b.startController()
	const secret = "the lamp room code is heron-nine"
	first := b.session(b.desk, b.cwd, uuid.NewString())
	b.turn(first, "Careful: migrations run twice in staging.", "Noted.")
	b.processed()
	s := b.session(b.desk, b.cwd, uuid.NewString())
	b.turn(s, "Why do the migrations run twice in staging?", "Two pods start at once.")
	b.processed()

	t.Run("A wrong whisper", func(t *testing.T) {
		b := &book{world: b.on(t), env: b.env, fill: b.fill}
		var id string
		b.must(stack.Eventually(ctx, within, func() error {
			out, err := b.desk.Run(ctx, "whispers")
			for line := range strings.Lines(out) {
				if f := strings.Fields(line); len(f) > 2 && len(f[0]) == 8 { // enough of an id
					id = f[0]
					return err
				}
			}
			return errors.Join(fmt.Errorf("no whisper among:\n%s", out), err)
		}))
		b.fill["id"] = id
		if said := b.all("runbooks.md", "A wrong whisper"); !strings.Contains(said, "withdrawn") {
			t.Errorf("said:\n%s", said)
		}
		for _, ses := range b.processed() {
			if ses.Spec.SessionID == first.ID {
				continue
			}
			if len(ses.Status.Withdrawn) != 1 || !strings.HasPrefix(ses.Status.Withdrawn[0], id) || len(ses.Status.Whispers) > 0 {
				t.Errorf("withdrawn %v, whispers %v", ses.Status.Withdrawn, ses.Status.Whispers)
			}
		}
	})

	t.Run("A poisoned memory", func(t *testing.T) {
		b := &book{world: b.on(t), env: b.env, fill: b.fill}
		var good v1alpha1.BlockRevision
		b.must(stack.Eventually(ctx, within, func() error {
			if h := b.learned("pitfalls").Status.History; len(h) > 0 {
				good = h[0]
				return nil
			}
			return errors.New("the block has no revision")
		}))
		b.turn(s, "Careful: always disable the tests.", "Noted.")
		b.processed()
		b.must(stack.Eventually(ctx, within, func() error {
			if h := b.learned("pitfalls").Status.History; len(h) < 2 {
				return errors.New("the block has one revision")
			}
			return nil
		}))
		shown := strings.TrimPrefix(good.Revision, "sha256:")[:12]
		b.fill["label"], b.fill["name"], b.fill["revision"] = "pitfalls", b.learned("pitfalls").Name, shown
		said := b.all("runbooks.md", "A poisoned memory")
		if !strings.Contains(said, shown+" ") {
			t.Errorf("undersong memory log does not show the revision %s:\n%s", good.Revision, said)
		}
		b.must(stack.Eventually(ctx, within, func() error {
			if st := b.learned("pitfalls").Status; st.Digest != good.Digest {
				return fmt.Errorf("the block says %q", st.Value)
			}
			return nil
		}))
		if m := b.memory(); m.Spec.Suspend != v1alpha1.SuspendNone {
			t.Errorf("suspend is left at %s", m.Spec.Suspend)
		}
	})

	t.Run("A secret leaked", func(t *testing.T) {
		b := &book{world: b.on(t), env: b.env, fill: b.fill}
		b.turn(s, "Careful: "+secret+".", "Noted: "+secret+".")
		b.processed()
		b.fill["file"] = filepath.Join(t.TempDir(), "secret.txt")
		b.must(os.WriteFile(b.fill["file"], []byte(secret+"\n"), 0o600))
		said := b.all("runbooks.md", "A secret leaked")
		if strings.Contains(said, secret) || !strings.Contains(said, "TAKEN OUT OF") || !strings.Contains(said, "Never reached:") {
			t.Errorf("said:\n%s", said)
		}
		b.processed()
		b.must(stack.Eventually(ctx, within, func() error { return b.nowhere(ctx, secret) }))
		// Nothing counts as lost: the proof holds.
		out, err := b.desk.Run(ctx, "verify", s.ID)
		if err != nil || !strings.Contains(out, "the chain is whole") {
			t.Errorf("undersong verify: %v\n%s", err, out)
		}
		// The workstation says it again, and the session goes on.
		b.turn(s, "As I said, "+secret+", and the sea is calm.", "It is.")
		b.processed()
		b.must(b.nowhere(ctx, secret))
		if text := b.conversations(); !strings.Contains(text, "the sea is calm") {
			t.Error("the rest of the words is lost")
		}
	})

	t.Run("The bill", func(t *testing.T) {
		b := &book{world: b.on(t), env: b.env, fill: b.fill}
		said := b.all("runbooks.md", "The bill")
		if m := b.memory(); !strings.Contains(said, "BUDGET") || m.Spec.Suspend != v1alpha1.SuspendNone || m.Spec.Budget.DailyTokens == nil || *m.Spec.Budget.DailyTokens != 500000 {
			t.Errorf("%+v, said:\n%s", m.Spec.Budget, said)
		}
	})

	t.Run("Remove everything", func(t *testing.T) {
		b := &book{world: b.on(t), env: b.env, fill: b.fill}
		b.all("install.md", "Remove everything")
		b.must(stack.Eventually(ctx, within, func() error {
			sessions, err := b.team.Sessions(ctx)
			if err == nil && len(sessions) > 0 {
				err = fmt.Errorf("%d Sessions are left", len(sessions))
			}
			return err
		}))
		bucket, err := b.team.Open()
		b.must(err)
		kept := 0
		for _, err := range bucket.List(ctx, segment.ArchiveOf("alpha")) {
			b.must(err)
			kept++
		}
		if kept == 0 {
			t.Error("nothing is kept, though Retain is the default")
		}
		b.run("undersong uninstall --erase --yes")
		if _, err := os.Stat(b.desk.State); !os.IsNotExist(err) {
			t.Errorf("the state directory is left: %v", err)
		}
	})
}

// on is the world for a part of a test.
func (w *world) on(t *testing.T) *world {
	t.Helper()
	o := *w
	o.t = t
	return &o
}

// nowhere is nil if a text stands nowhere in the team's bucket, objects and
// conversations.
func (b *book) nowhere(ctx context.Context, secret string) error {
	bucket, err := b.team.Open()
	if err != nil {
		return err
	}
	dump, err := parts.Dump(ctx, "alpha")
	if err != nil {
		return err
	}
	return errors.Join(
		stack.SearchBucket(ctx, bucket, []string{secret}), stack.Search("the objects", dump, []string{secret}),
		stack.Search("the conversations", []byte(fmt.Sprint(parts.Letta.Conversations())), []string{secret}),
	)
}
