package lag

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

func TestLagIsToldByNamespace(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	session := func(namespace, name string, spec, status, lost int64, ago time.Duration, state v1alpha1.SessionState) *v1alpha1.Session {
		at := metav1.NewTime(now.Add(-ago))
		return &v1alpha1.Session{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.SessionSpec{Lines: spec},
			Status:     v1alpha1.SessionStatus{Lines: status, LostLines: lost, LastActivityTime: &at, State: state},
		}
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	// Words come all the time, and none is delivered for three hours.
	waiting := session("c", "more comes meanwhile", 9, 4, 0, time.Second, v1alpha1.SessionActive)
	waiting.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.VerifiedCondition, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour))},
		{Type: v1alpha1.DeliveredCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-3 * time.Hour))},
	}
	parkedOne := session("c", "parked", 5, 5, 0, time.Hour, v1alpha1.SessionIdle)
	parkedOne.Status.SyncState = &v1alpha1.SyncState{Parked: make([]v1alpha1.ParkedDelivery, 2)}
	c := &Collector{
		Clock: clocktesting.NewFakePassiveClock(now),
		Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			session("a", "behind", 10, 4, 0, time.Minute, v1alpha1.SessionActive),
			session("a", "longer behind", 5, 4, 0, time.Hour, v1alpha1.SessionIdle),
			session("a", "done", 5, 5, 0, 24*time.Hour, v1alpha1.SessionEnded),
			session("b", "lost is not lag", 5, 3, 2, time.Hour, v1alpha1.SessionEnded),
			waiting, parkedOne,
			&v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "alpha"}, Status: v1alpha1.TeamMemoryStatus{Usage: &v1alpha1.DayUsage{Percent: 37}}},
			&v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: "delta"}},
		).Build(),
	}
	want := `
# HELP undersong_budget_spent_percent Percent of the budget spent on the newest day with a turn.
# TYPE undersong_budget_spent_percent gauge
undersong_budget_spent_percent{memory="alpha",namespace="a"} 37
undersong_budget_spent_percent{memory="delta",namespace="new"} 0
# HELP undersong_lost_lines Lines that were in segments that could not be sent again.
# TYPE undersong_lost_lines gauge
undersong_lost_lines{namespace="a"} 0
undersong_lost_lines{namespace="b"} 2
undersong_lost_lines{namespace="c"} 0
undersong_lost_lines{namespace="new"} 0
# HELP undersong_oldest_undelivered_seconds Seconds that the Session that has waited longest has waited; 0 when nothing waits.
# TYPE undersong_oldest_undelivered_seconds gauge
undersong_oldest_undelivered_seconds{namespace="a"} 3600
undersong_oldest_undelivered_seconds{namespace="b"} 0
undersong_oldest_undelivered_seconds{namespace="c"} 10800
undersong_oldest_undelivered_seconds{namespace="new"} 0
# HELP undersong_parked_deliveries Deliveries that are given up for now.
# TYPE undersong_parked_deliveries gauge
undersong_parked_deliveries{namespace="a"} 0
undersong_parked_deliveries{namespace="b"} 0
undersong_parked_deliveries{namespace="c"} 2
undersong_parked_deliveries{namespace="new"} 0
# HELP undersong_sessions Sessions.
# TYPE undersong_sessions gauge
undersong_sessions{namespace="a",state="Active"} 1
undersong_sessions{namespace="a",state="Ended"} 1
undersong_sessions{namespace="a",state="Idle"} 1
undersong_sessions{namespace="b",state="Active"} 0
undersong_sessions{namespace="b",state="Ended"} 1
undersong_sessions{namespace="b",state="Idle"} 0
undersong_sessions{namespace="c",state="Active"} 1
undersong_sessions{namespace="c",state="Ended"} 0
undersong_sessions{namespace="c",state="Idle"} 1
undersong_sessions{namespace="new",state="Active"} 0
undersong_sessions{namespace="new",state="Ended"} 0
undersong_sessions{namespace="new",state="Idle"} 0
# HELP undersong_undelivered_lines Lines that are uploaded and not processed.
# TYPE undersong_undelivered_lines gauge
undersong_undelivered_lines{namespace="a"} 7
undersong_undelivered_lines{namespace="b"} 0
undersong_undelivered_lines{namespace="c"} 5
undersong_undelivered_lines{namespace="new"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
