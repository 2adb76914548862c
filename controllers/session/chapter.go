package session

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/segment"
)

const (
	// eventBegunAnew is the reason of the event about a workstation whose
	// segments do not go on from those of the deleted Session.
	eventBegunAnew = "BegunAnew"
	// waitForPage is how long to wait for the memory to have all of the chapter
	// before. A turn that ends wakes the Session earlier.
	waitForPage = time.Minute
)

// turnPage begins a new chapter of a writer: the Session of before was deleted,
// and its workstation read the transcript again, from the beginning and in other
// segments. They get a folder of their own in the archive. The seen-set goes on,
// so that nothing that the memory knows is told again.
//
// What is verified of the chapter before goes to the memory first, since nobody
// else may have it any more; but a wish to forget does not wait for that. What
// is parked or held of it comes again with the transcript.
func (r *Reconciler) turnPage(s *scope, sync *v1alpha1.WriterSync) error {
	st := s.ses.Status.SyncState
	d := st.Delivery
	open := d != nil && d.Workstation == sync.Workstation && d.Phase != v1alpha1.DeliveryPublished
	forgets := slices.ContainsFunc(s.ses.Spec.Requests, func(q v1alpha1.Request) bool {
		return q.Kind == v1alpha1.RequestForget && !hasAnswer(s.ses, q.ID)
	})
	if !forgets && (open || sync.Delivered.Segments < deliverable(sync)) {
		return outcome.Waitf(v1alpha1.ProgressingReason, waitForPage, "workstation %s began anew after this Session had been deleted; what the archive has of before goes to the memory first", sync.Workstation)
	}
	if open {
		st.Delivery = nil
		r.Turns.drop(s.key)
	}
	st.Parked = slices.DeleteFunc(st.Parked, func(p v1alpha1.ParkedDelivery) bool { return p.Delivery.Workstation == sync.Workstation })
	*sync = v1alpha1.WriterSync{
		Workstation: sync.Workstation, Chapter: sync.Chapter + 1, LastProcessedIndex: -1,
		Verified: v1alpha1.WriterVerified{Chain: segment.Start(s.ses.Name, sync.Workstation).String()},
	}
	s.ses.Status.LostLines = 0 // of the Session before
	r.tell(s, corev1.EventTypeNormal, eventBegunAnew, fmt.Sprintf("workstation %s began anew after the Session had been deleted; the archive keeps what it had, and the memory is told only what is new", sync.Workstation))
	return outcome.Waitf(v1alpha1.ProgressingReason, 0, "more segments wait to be verified")
}
