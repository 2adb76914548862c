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
	c := &Collector{
		Clock: clocktesting.NewFakePassiveClock(now),
		Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			session("a", "behind", 10, 4, 0, time.Minute, v1alpha1.SessionActive),
			session("a", "longer behind", 5, 4, 0, time.Hour, v1alpha1.SessionIdle),
			session("a", "done", 5, 5, 0, 24*time.Hour, v1alpha1.SessionEnded),
			session("b", "lost is not lag", 5, 3, 2, time.Hour, v1alpha1.SessionEnded),
		).Build(),
	}
	want := `
# HELP undersong_oldest_undelivered_seconds Seconds since the Session that has waited longest was last heard of; 0 when nothing waits.
# TYPE undersong_oldest_undelivered_seconds gauge
undersong_oldest_undelivered_seconds{namespace="a"} 3600
undersong_oldest_undelivered_seconds{namespace="b"} 0
# HELP undersong_sessions Sessions.
# TYPE undersong_sessions gauge
undersong_sessions{namespace="a",state="Active"} 1
undersong_sessions{namespace="a",state="Ended"} 1
undersong_sessions{namespace="a",state="Idle"} 1
undersong_sessions{namespace="b",state="Active"} 0
undersong_sessions{namespace="b",state="Ended"} 1
undersong_sessions{namespace="b",state="Idle"} 0
# HELP undersong_undelivered_lines Lines that are uploaded and not processed.
# TYPE undersong_undelivered_lines gauge
undersong_undelivered_lines{namespace="a"} 7
undersong_undelivered_lines{namespace="b"} 0
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
