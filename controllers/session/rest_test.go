package session

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// resting is a Session that rests.
func resting(name string) *v1alpha1.Session {
	chain := "a"
	return &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: "alpha", Name: name, Generation: 3},
		Spec:       v1alpha1.SessionSpec{Writers: []v1alpha1.Writer{{Workstation: "ws", Segments: 2, Chain: chain}}, Requests: []v1alpha1.Request{{ID: "q1"}}},
		Status: v1alpha1.SessionStatus{
			ObservedGeneration: 3, Conditions: []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue}},
			SyncState: &v1alpha1.SyncState{
				Delivery: &v1alpha1.Delivery{Phase: v1alpha1.DeliveryPublished},
				Writers:  []v1alpha1.WriterSync{{Workstation: "ws", Verified: v1alpha1.WriterVerified{Segments: 2, Chain: chain}, Delivered: v1alpha1.Cut{Segments: 2}}},
			},
			Answered: []v1alpha1.Answer{{ID: "q1"}},
		},
	}
}

func TestRests(t *testing.T) {
	if !rests(resting("s")) {
		t.Fatal("a Session with nothing left to do does not rest")
	}
	for name, spoil := range map[string]func(*v1alpha1.Session){
		"new":                func(s *v1alpha1.Session) { s.Status = v1alpha1.SessionStatus{} },
		"changed":            func(s *v1alpha1.Session) { s.Generation++ },
		"not Ready":          func(s *v1alpha1.Session) { s.Status.Conditions[0].Status = metav1.ConditionUnknown },
		"with a new segment": func(s *v1alpha1.Session) { s.Spec.Writers[0].Segments++ },
		"on another chain":   func(s *v1alpha1.Session) { s.Spec.Writers[0].Chain = "b" },
		"with a new writer": func(s *v1alpha1.Session) {
			s.Spec.Writers = append(s.Spec.Writers, v1alpha1.Writer{Workstation: "other"})
		},
		"behind":                 func(s *v1alpha1.Session) { s.Status.SyncState.Writers[0].Delivered.Segments-- },
		"with a held segment":    func(s *v1alpha1.Session) { s.Status.SyncState.Writers[0].Held = []v1alpha1.HeldSegment{{Segment: 2}} },
		"with a wanted segment":  func(s *v1alpha1.Session) { s.Status.SyncState.Writers[0].Wanted = []int64{2} },
		"of doubtful origin":     func(s *v1alpha1.Session) { s.Status.SyncState.Writers[0].Origin = v1alpha1.OriginArchive },
		"in mid-turn":            func(s *v1alpha1.Session) { s.Status.SyncState.Delivery.Phase = v1alpha1.DeliverySending },
		"answered, unpublished":  func(s *v1alpha1.Session) { s.Status.SyncState.Delivery.Phase = v1alpha1.DeliveryDelivered },
		"with something parked":  func(s *v1alpha1.Session) { s.Status.SyncState.Parked = []v1alpha1.ParkedDelivery{{}} },
		"with an open request":   func(s *v1alpha1.Session) { s.Spec.Requests[0].ID = "q2" },
		"with a settled request": func(s *v1alpha1.Session) { s.Spec.Requests = nil },
	} {
		s := resting("s")
		spoil(s)
		if rests(s) {
			t.Errorf("a Session %s rests", name)
		}
	}
}

// TestWhatWaitsComesFirst fills a queue as a new process does, and as a change
// of a memory does.
func TestWhatWaitsComesFirst(t *testing.T) {
	busy := resting("busy")
	busy.Generation++
	q := priorityqueue.New[reconcile.Request]("first")
	defer q.ShutDown()
	for i := range 100 {
		s := resting(fmt.Sprintf("s%03d", i))
		for _, h := range []handler.EventHandler{&handler.EnqueueRequestForObject{}, first()} {
			h.Create(t.Context(), event.CreateEvent{Object: s, IsInInitialList: true}, q)
		}
	}
	for _, h := range []handler.EventHandler{&handler.EnqueueRequestForObject{}, first()} {
		h.Create(t.Context(), event.CreateEvent{Object: busy, IsInInitialList: true}, q)
	}
	if got, priority, _ := q.GetWithPriority(); got.Name != "busy" || priority != 0 {
		t.Errorf("a new process looks at %s first, with priority %d; want what waits, with 0", got.Name, priority)
	}

	q = priorityqueue.New[reconcile.Request]("changed")
	defer q.ShutDown()
	for i := range 100 {
		enqueue(q, resting(fmt.Sprintf("s%03d", i)))
	}
	enqueue(q, busy)
	if got, priority, _ := q.GetWithPriority(); got.Name != "busy" || priority != 0 {
		t.Errorf("after a change of the memory %s comes first, with priority %d; want what waits, with 0", got.Name, priority)
	}
	if _, priority, _ := q.GetWithPriority(); priority != handler.LowPriority {
		t.Errorf("what rests has priority %d, want %d", priority, handler.LowPriority)
	}
}
