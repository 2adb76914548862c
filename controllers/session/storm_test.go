package session

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/status"
	"github.com/undersong-dev/undersong/internal/redact"
)

// mute is a network on which nobody answers; it counts who asks.
type mute struct{ calls atomic.Int64 }

func (s *mute) RoundTrip(*http.Request) (*http.Response, error) {
	s.calls.Add(1)
	return nil, errors.New("connection refused")
}

// due is when a session is to be looked at.
type due struct {
	at   time.Time
	name string
}

type queue []due

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(due)) } //nolint:forcetypeassert // of our own
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// TestADeadLettaIsNotStormed lets a thousand sessions, each with a delivery
// that must be looked up, meet a Letta that does not answer, for a quarter of an
// hour of the clock, with waits and backoff as the queue has them.
func TestADeadLettaIsNotStormed(t *testing.T) {
	const sessions = 1000
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	secret := func(name, host string, keys ...string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{connect.HostsAnnotation: host}}, Data: map[string][]byte{}}
		for _, k := range keys {
			s.Data[k] = []byte("k")
		}
		return s
	}
	objects := []client.Object{
		secret("letta", "letta.example.com", "apiKey"), secret("store", "s3.example.com", "accessKeyID", "secretAccessKey"),
		&v1alpha1.TeamMemory{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "team", UID: "uid", Generation: 1},
			Spec: v1alpha1.TeamMemorySpec{
				Letta: v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: "https://letta.example.com", CredentialsSecretRef: &v1alpha1.LocalRef{Name: "letta"}},
				Agent: v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "Team", Model: "m"}},
				Store: v1alpha1.Store{Endpoint: "https://s3.example.com", Bucket: "bucket", CredentialsSecretRef: v1alpha1.LocalRef{Name: "store"}},
			},
		},
	}
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var q queue
	for i := range sessions {
		id := fmt.Sprintf("s-%d", i)
		owner := fmt.Sprintf("owner-%d", i%20)
		name := v1alpha1.SessionName(id, owner)
		activity := metav1.NewTime(start)
		objects = append(objects, &v1alpha1.Session{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1, CreationTimestamp: activity},
			Spec: v1alpha1.SessionSpec{
				Owner: owner, SessionID: id, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: "team"},
				Project: v1alpha1.Project{Name: "p", Remote: "git.example.com/p"},
			},
			Status: v1alpha1.SessionStatus{LastActivityTime: &activity, SyncState: &v1alpha1.SyncState{
				ConversationID: "conv-1", AgentID: "agent-1",
				Delivery: &v1alpha1.Delivery{ID: "d", Workstation: "ws", RenderVersion: 1, Phase: v1alpha1.DeliverySending, Attempts: 1},
			}},
		})
		heap.Push(&q, due{start, name})
	}
	writes := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Session{}).
		WithIndex(&v1alpha1.Session{}, memoryIndex, func(o client.Object) []string {
			s, _ := o.(*v1alpha1.Session)
			return []string{s.Spec.MemoryRef.Name}
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
			},
		}).Build()
	clock := clocktesting.NewFakePassiveClock(start)
	network := &mute{}
	redactor, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	turns := NewTurns()
	turns.Clock = clock
	recorder := events.NewFakeRecorder(2 * sessions)
	r := &Reconciler{
		Client: c, Live: c, Connect: connect.New(c, network, clock), Agents: &connect.Agents{Clock: clock}, Turns: turns,
		Budget: &budget.Ledger{Reader: c, Clock: clock}, Redactor: redactor, Recorder: recorder, Clock: clock,
	}
	backoff := status.Backoff()
	looks := 0
	for end := start.Add(15 * time.Minute); q[0].at.Before(end); looks++ {
		next, _ := heap.Pop(&q).(due)
		clock.SetTime(next.at)
		req := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: next.name}}
		res, err := r.Reconcile(t.Context(), req)
		switch {
		case err != nil:
			next.at = next.at.Add(backoff.When(req))
		case res.RequeueAfter > 0:
			backoff.Forget(req)
			next.at = next.at.Add(res.RequeueAfter)
		default:
			t.Fatalf("%s is never looked at again", next.name)
		}
		heap.Push(&q, next)
	}
	// Five while the rest grows to a minute, then one a minute; a look-up is two
	// requests.
	if n := network.calls.Load(); n < 15 || n > 50 {
		t.Errorf("%d sessions made %d requests to a dead Letta in a quarter of an hour, want about 40", sessions, n)
	}
	// Each says so once.
	if writes != sessions || len(recorder.Events) != sessions {
		t.Errorf("%d status writes and %d events of %d sessions, want one of each", writes, len(recorder.Events), sessions)
	}
	if looks > 30*sessions {
		t.Errorf("%d looks at %d sessions in a quarter of an hour, want at most two a minute for each", looks, sessions)
	}
	t.Logf("%d calls, %d writes, %d looks", network.calls.Load(), writes, looks)
}
