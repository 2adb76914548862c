package memoryblock

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/redact"
)

const remote = "git.example.com/lighthouse/lantern"

// world is a memory with one agent, one session and one block.
type world struct {
	t     *testing.T
	c     client.Client
	letta letta.Client
	agent string
	clock *clocktesting.FakeClock
	r     *Reconciler
	key   types.NamespacedName
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC))}
	server, err := lettatest.New(lettatest.Options{})
	w.must(err)
	url, err := server.Start(t.Context(), "")
	w.must(err)
	t.Cleanup(func() { _ = server.Close() })
	w.letta, err = api.New(api.Options{BaseURL: url})
	w.must(err)
	agent, err := w.letta.CreateAgent(t.Context(), letta.AgentSpec{Name: "a", Model: "m", Tags: []string{"t"}, Blocks: []letta.Block{{Label: "conventions", Value: "- first"}}})
	w.must(err)
	w.agent = agent.ID

	scheme := runtime.NewScheme()
	w.must(v1alpha1.AddToScheme(scheme))
	w.key = types.NamespacedName{Namespace: "ns", Name: v1alpha1.MemoryBlockName("team", remote, "conventions")}
	w.c = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.MemoryBlock{}, &v1alpha1.Session{}).
		WithIndex(&v1alpha1.Session{}, "spec.memoryRef.name", func(o client.Object) []string {
			return []string{o.(*v1alpha1.Session).Spec.MemoryRef.Name} //nolint:forcetypeassert // registered for Sessions
		}).
		WithObjects(
			&v1alpha1.TeamMemory{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "team", UID: "m"},
				Spec:       v1alpha1.TeamMemorySpec{Letta: v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: url, Insecure: v1alpha1.InsecureAllow}},
			},
			&v1alpha1.Session{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s1"},
				Spec:       v1alpha1.SessionSpec{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Project: v1alpha1.Project{Name: "lantern", Remote: remote}},
				Status:     v1alpha1.SessionStatus{SyncState: &v1alpha1.SyncState{AgentID: agent.ID}},
			},
			&v1alpha1.MemoryBlock{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: w.key.Name},
				Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Project: remote, Label: "conventions", Mode: v1alpha1.BlockLearned},
			},
		).Build()
	redactor, err := redact.New()
	w.must(err)
	w.r = &Reconciler{Client: w.c, Connect: connect.New(w.c, nil, w.clock), Redactor: redactor, Recorder: events.NewFakeRecorder(16), Clock: w.clock}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// reconcile runs one reconcile and returns the block.
func (w *world) reconcile() (*v1alpha1.MemoryBlock, ctrl.Result) {
	w.t.Helper()
	res, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: w.key})
	if err != nil {
		w.t.Log(err)
	}
	b := &v1alpha1.MemoryBlock{}
	w.must(w.c.Get(w.t.Context(), w.key, b))
	return b, res
}

// write has the agent write, and the session publish the revision.
func (w *world) write(value string) {
	w.t.Helper()
	revision, err := w.letta.PutBlock(w.t.Context(), w.agent, letta.Block{Label: "conventions", Value: value}, "test")
	w.must(err)
	s := &v1alpha1.Session{}
	w.must(w.c.Get(w.t.Context(), types.NamespacedName{Namespace: "ns", Name: "s1"}, s))
	s.Status.SyncState.MemoryRevision = revision
	w.must(w.c.Status().Update(w.t.Context(), s))
}

func TestABlockShowsWhatTheAgentWrote(t *testing.T) {
	w := newWorld(t)
	w.write("- tide tables are in GMT")
	b, _ := w.reconcile()
	if b.Status.Value != "- tide tables are in GMT" || b.Status.LastSession != "s1" || b.Status.Bytes != 24 || b.Status.Revision == "" {
		t.Errorf("status is %+v", b.Status)
	}
	before := b.ResourceVersion
	if b, _ = w.reconcile(); b.ResourceVersion != before {
		t.Error("an unchanged block was written")
	}
}

func TestABlockIsWrittenAtMostEveryFifteenSeconds(t *testing.T) {
	w := newWorld(t)
	w.write("one")
	w.reconcile()
	w.clock.Step(5 * time.Second)
	w.write("two")
	b, res := w.reconcile()
	if b.Status.Value != "one" || res.RequeueAfter != 10*time.Second {
		t.Errorf("value %q, again in %s; want one, 10s", b.Status.Value, res.RequeueAfter)
	}
	w.clock.Step(10 * time.Second)
	if b, _ = w.reconcile(); b.Status.Value != "two" {
		t.Errorf("value %q after the quiet time, want two", b.Status.Value)
	}
}

func TestABlockIsSafeToShow(t *testing.T) {
	for name, c := range map[string]struct{ reason, value, want, not string }{
		"secret":    {"a credential that the agent wrote is removed", "key is ghp_" + strings.Repeat("A1b2", 9), "key is ", "A1b2A1b2"},
		"control":   {"control and format characters are removed", "a\x1b[31mred\u202e\u200bb\nc", "a[31mredb\nc", "\x1b"},
		"very long": {"a long text is cut, its size is told", strings.Repeat("x", 20000), strings.Repeat("x", 100), strings.Repeat("x", 16385)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write(c.value)
			b, _ := w.reconcile()
			if !strings.Contains(b.Status.Value, c.want) || strings.Contains(b.Status.Value, c.not) {
				t.Errorf("%s: value is %.80q…", c.reason, b.Status.Value)
			}
		})
	}
}

func TestABlockWithAnotherNameIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.key.Name = "team-conventions-copy"
	w.must(w.c.Create(t.Context(), &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: w.key.Name},
		Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Project: remote, Label: "conventions", Mode: v1alpha1.BlockLearned},
	}))
	b, _ := w.reconcile()
	if b.Status.Value != "" || b.Status.Conditions[0].Reason != v1alpha1.InvalidSpecReason {
		t.Errorf("a second object for the same block has status %+v", b.Status)
	}
}

func TestABlockOfTheWholeTeamShowsNoProjectsMemory(t *testing.T) {
	w := newWorld(t)
	w.write("- only for lantern")
	w.key.Name = v1alpha1.MemoryBlockName("team", "", "conventions")
	w.must(w.c.Create(t.Context(), &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: w.key.Name},
		Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: "team"}, Label: "conventions", Mode: v1alpha1.BlockLearned},
	}))
	if b, _ := w.reconcile(); b.Status.Value != "" {
		t.Errorf("under scope Project it shows %q", b.Status.Value)
	}
}
