package budget_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/internal/outcome"
)

// late is shortly before the end of a day by UTC, and a day later by the
// clocks of the east.
var late = time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC).In(time.FixedZone("east", 9*3600))

func memory(daily int64) *v1alpha1.TeamMemory {
	m := &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "alpha", UID: "uid"}}
	if daily > 0 {
		m.Spec.Budget.DailyTokens = &daily
	}
	return m
}

func ledger(t *testing.T, at time.Time, sessions ...client.Object) (*budget.Ledger, *clocktesting.FakePassiveClock) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := clocktesting.NewFakePassiveClock(at)
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(sessions...).
		WithIndex(&v1alpha1.Session{}, budget.MemoryIndex, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Session).Spec.MemoryRef.Name} //nolint:forcetypeassert // registered for Sessions
		}).Build()
	return &budget.Ledger{Reader: reader, Clock: c}, c
}

func session(name, owner, memory, day string, tokens, imports int64) *v1alpha1.Session {
	return &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       v1alpha1.SessionSpec{Owner: owner, MemoryRef: v1alpha1.LocalRef{Name: memory}},
		Status:     v1alpha1.SessionStatus{Usage: v1alpha1.Usage{Day: day, DayTokens: tokens, DayImportTokens: imports, Tokens: 999_999}},
	}
}

// said is the message of the condition, empty where a turn may begin.
func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestWhatIsLeftOfADay(t *testing.T) {
	type turn struct {
		owner    string
		imported bool
		tokens   int64
	}
	for name, c := range map[string]struct {
		reason   string
		daily    int64
		turns    []turn
		owner    string
		imported bool
		want     string // part of the message
	}{
		"nothing spent":          {"all is left", 1000, nil, "ada", false, ""},
		"one below":              {"a turn begins while anything is left", 1000, []turn{{"bob", false, 999}}, "ada", false, ""},
		"all":                    {"nothing is left for anybody", 1000, []turn{{"bob", false, 1000}}, "ada", false, "spent are the 1000 tokens that TeamMemory alpha has for a day; deliveries continue on 2026-12-01 at 00:00 UTC"},
		"the default":            {"2,000,000 where nothing is said", 0, []turn{{"bob", false, 2_000_000}}, "ada", false, "spent are the 2000000 tokens"},
		"a quarter":              {"one owner cannot use up the day of all", 1000, []turn{{"ada", false, 250}}, "ada", false, "this owner has spent a quarter of the 1000 tokens"},
		"somebody else's":        {"nor is he stopped by another's quarter", 1000, []turn{{"bob", false, 250}}, "ada", false, ""},
		"below a quarter":        {"up to there he is free", 1000, []turn{{"ada", false, 249}}, "ada", false, ""},
		"a fifth":                {"imports of all together", 1000, []turn{{"ada", true, 100}, {"bob", true, 100}}, "eve", true, "imports have spent a fifth of the 1000 tokens"},
		"below a fifth":          {"up to there they are free", 1000, []turn{{"ada", true, 199}}, "eve", true, ""},
		"live after imports":     {"imports stop nobody who talks now", 1000, []turn{{"ada", true, 200}}, "eve", false, ""},
		"import after live":      {"what is live is no import", 1000, []turn{{"ada", false, 240}}, "eve", true, ""},
		"a budget of one":        {"parts of nothing are one", 1, nil, "ada", true, ""},
		"more than ever allowed": {"a turn that ran when it ended", 1000, []turn{{"bob", false, 40_000}}, "ada", false, "spent are the"},
	} {
		t.Run(name, func(t *testing.T) {
			l, clock := ledger(t, late)
			m := memory(c.daily)
			if err := l.Open(t.Context(), m, "somebody", false); err != nil {
				t.Fatal(err)
			}
			for _, s := range c.turns {
				l.Add(m.UID, s.owner, s.imported, s.tokens)
			}
			err := l.Open(t.Context(), m, c.owner, c.imported)
			if (c.want == "") != (err == nil) || !strings.Contains(said(err), c.want) {
				t.Fatalf("%s: %q, want %q", c.reason, said(err), c.want)
			}
			if err == nil {
				return
			}
			if o := outcome.Of(err); o.Kind != outcome.Wait || o.Reason != v1alpha1.BudgetExhaustedReason || o.After != time.Minute {
				t.Errorf("%s: %v %s for %s, want to wait for the end of the day by UTC, in a minute", c.reason, o.Kind, o.Reason, o.After)
			}
			clock.SetTime(late.Add(30 * time.Second))
			if again := l.Open(t.Context(), m, c.owner, c.imported); said(again) != said(err) {
				t.Errorf("the message changes with the time: %q", said(again))
			}
			clock.SetTime(late.Add(time.Minute))
			if err := l.Open(t.Context(), m, c.owner, c.imported); err != nil {
				t.Errorf("on the next day: %v", err)
			}
		})
	}
}

func TestANewProcessKnowsWhatWasSpent(t *testing.T) {
	l, _ := ledger(t, late,
		session("a", "ada", "alpha", "2026-11-30", 100, 40),
		session("b", "ada", "alpha", "2026-11-30", 150, 0),
		session("c", "bob", "alpha", "2026-11-29", 500, 500), // yesterday
		session("d", "bob", "beta", "2026-11-30", 500, 500),  // another memory's
	)
	m := memory(1000)
	got, err := l.Today(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&v1alpha1.DayUsage{Day: "2026-11-30", Tokens: 250, ImportTokens: 40, Percent: 25}, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if err := l.Open(t.Context(), m, "ada", false); err == nil {
		t.Error("the owner's quarter was forgotten")
	}
	if err := l.Open(t.Context(), m, "bob", false); err != nil {
		t.Error(err)
	}
}

func TestADeletedSessionHasSpentWhatItSpent(t *testing.T) {
	l, _ := ledger(t, late, session("a", "ada", "alpha", "2026-11-30", 100, 0))
	m := memory(1000)
	m.Status.Usage = &v1alpha1.DayUsage{Day: "2026-11-30", Tokens: 1000, Percent: 100}
	if err := l.Open(t.Context(), m, "bob", false); err == nil {
		t.Error("who deletes his Sessions gets the day's tokens anew")
	}
	m = memory(1000)
	m.UID, m.Status.Usage = "other", &v1alpha1.DayUsage{Day: "2026-11-29", Tokens: 1000, Percent: 100}
	if err := l.Open(t.Context(), m, "bob", false); err != nil {
		t.Errorf("yesterday's: %v", err)
	}
}

func TestARaisedBudgetOpens(t *testing.T) {
	l, _ := ledger(t, late)
	m := memory(1000)
	_ = l.Open(t.Context(), m, "ada", false) // asked once
	l.Add(m.UID, "bob", false, 1000)
	if err := l.Open(t.Context(), m, "ada", false); err == nil {
		t.Fatal("nothing is left")
	}
	if err := l.Open(t.Context(), memory(2000), "ada", false); err != nil {
		t.Errorf("after it was raised: %v", err)
	}
	l.Forget(m.UID)
	if u, err := l.Today(t.Context(), m); err != nil || u != nil {
		t.Errorf("a memory that is gone still has %v, %v", u, err)
	}
}
