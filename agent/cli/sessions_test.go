package cli

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

func TestSessionRowsAreGolden(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	heard := metav1.NewTime(now.Add(-90 * time.Minute))
	rows := []sessionRow{newSessionRow(&v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Name: "s1-00000000", CreationTimestamp: metav1.NewTime(now.Add(-48 * time.Hour))},
		Spec: v1alpha1.SessionSpec{
			Owner: "ada", SessionID: "s1", Project: v1alpha1.Project{Name: "shop", Remote: "git.example.com/team/shop"}, Lines: 120,
			Writers: []v1alpha1.Writer{{Workstation: "w1", Branch: "main"}},
		},
		Status: v1alpha1.SessionStatus{
			Title: "Fix \x1b[31mthe\u202e cart", Tag: "bug", PullRequest: "12", State: v1alpha1.SessionIdle, Lines: 100, LastActivityTime: &heard,
			Conditions: []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1alpha1.LettaUnavailableReason}},
		},
	})}
	golden(t, "sessions", renderSessionRows(rows, 3, true, now)+"\n"+renderSessionRows(rows, 1, false, now)+"\n"+renderSessionRows(nil, 0, false, now))
}
