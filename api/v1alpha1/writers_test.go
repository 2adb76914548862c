//go:build envtest

package v1alpha1_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// A machine is one workstation's way of writing: it applies its own entry and
// the sum, forced, as its own manager, onto exactly the object it read.
type machine string

// entry returns the entry of so many segments of ten lines each. Its chain is
// told apart by a letter.
func (m machine) entry(segments int64, now, before string) fields {
	return fields{
		"workstation": string(m), "state": "Active",
		"segments": segments, "lines": 10 * segments, "bytes": 100 * segments,
		"chain": chain(now), "previousChain": chain(before),
	}
}

// apply applies an entry, or none, onto the object as it was read.
func (m machine) apply(ctx context.Context, read *v1alpha1.Session, lines int64, entries ...any) error {
	o := &unstructured.Unstructured{Object: fields{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "Session",
		"metadata": fields{
			"namespace": read.Namespace, "name": read.Name,
			"uid": string(read.UID), "resourceVersion": read.ResourceVersion,
		},
		"spec": fields{"lines": lines},
	}}
	if entries != nil {
		set(o, "spec.writers", entries)
	}
	return writerOf["Session"].Apply(ctx, client.ApplyConfigurationFromUnstructured(o),
		client.FieldOwner("undersong-"+string(m)), client.ForceOwnership)
}

// fresh makes a Session as a daemon does, without writers.
func fresh(t *testing.T, name string) *v1alpha1.Session {
	t.Helper()
	session := &v1alpha1.Session{Spec: v1alpha1.SessionSpec{
		Owner: owner, SessionID: name, Agent: v1alpha1.AgentClaudeCode,
		MemoryRef: v1alpha1.LocalRef{Name: "m"},
		Project:   v1alpha1.Project{Name: "shop", Remote: "github.com/example/shop"},
	}}
	session.Namespace, session.Name = namespace, v1alpha1.SessionName(name, owner)
	if err := writerOf["Session"].Create(t.Context(), session, client.FieldOwner("undersong-create")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := writerOf["Session"].Delete(context.WithoutCancel(t.Context()), session); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return session
}

// read reads it again.
func read(t *testing.T, session *v1alpha1.Session) *v1alpha1.Session {
	t.Helper()
	now := &v1alpha1.Session{}
	if err := writerOf["Session"].Get(t.Context(), client.ObjectKeyFromObject(session), now); err != nil {
		t.Fatal(err)
	}
	return now
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// uploaded is what matters of a Session here: lines by workstation, and the
// sum under the name "".
func uploaded(session *v1alpha1.Session) map[string]int64 {
	got := map[string]int64{"": session.Spec.Lines}
	for _, writer := range session.Spec.Writers {
		got[writer.Workstation] = writer.Lines
	}
	return got
}

func TestTwoWritersCoexist(t *testing.T) {
	const a, b = machine("wks-a"), machine("wks-b")
	session := fresh(t, "coexist")
	must(t, a.apply(t.Context(), read(t, session), 10, a.entry(1, "1", "0")))
	must(t, b.apply(t.Context(), read(t, session), 30, b.entry(2, "b", "a")))
	must(t, a.apply(t.Context(), read(t, session), 50, a.entry(3, "3", "1")))
	must(t, b.apply(t.Context(), read(t, session), 60, b.entry(3, "c", "b")))
	if diff := cmp.Diff(map[string]int64{"": 60, "wks-a": 30, "wks-b": 30}, uploaded(read(t, session))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestARepeatIsNoWrite(t *testing.T) {
	const a, b = machine("wks-a"), machine("wks-b")
	session := fresh(t, "repeat")
	must(t, a.apply(t.Context(), read(t, session), 10, a.entry(1, "1", "0")))
	must(t, b.apply(t.Context(), read(t, session), 20, b.entry(1, "b", "a")))

	// The first repeat takes the sum over from the other manager, which is a
	// change of metadata.managedFields. From then on nothing changes.
	must(t, a.apply(t.Context(), read(t, session), 20, a.entry(1, "1", "0")))
	before := read(t, session)
	for range 3 {
		must(t, a.apply(t.Context(), read(t, session), 20, a.entry(1, "1", "0")))
	}
	if after := read(t, session); after.ResourceVersion != before.ResourceVersion || after.Generation != 2+1 {
		t.Errorf("after a repeat: resourceVersion %s, was %s; generation %d, want 3 of a create and two applies",
			after.ResourceVersion, before.ResourceVersion, after.Generation)
	}
}

func TestRefusedApplies(t *testing.T) {
	const a, b = machine("wks-a"), machine("wks-b")
	for name, c := range map[string]struct {
		reason string
		lines  int64
		// entry of wks-a, which has 2 segments and 20 lines beside wks-b's 10.
		entry fields
		want  string // the rule, or "" if accepted
	}{
		"continued":           {"the next segment", 40, a.entry(3, "3", "2"), ""},
		"broken continuation": {"a daemon whose state was restored from a backup", 40, a.entry(3, "3", "1"), ruleContinue},
		"foreign chain":       {"a daemon of another machine with the same name", 30, a.entry(2, "9", "8"), ruleTogether},
		"taken back":          {"a state directory of yesterday", 20, a.entry(1, "1", "0"), ruleBack},
		"stale sum":           {"wks-b wrote in between and the daemon did not look", 30, a.entry(3, "3", "2"), ruleSum},
		"own lines alone":     {"the daemon forgot the other writer", 30, a.entry(3, "3", "2"), ruleSum},
		"lines without a segment": {"lines are made up", 31, func() fields {
			e := a.entry(2, "2", "1")
			e["lines"] = int64(21)
			return e
		}(), ruleTogether},
		"slot beyond segments": {"a slot of a segment that is not named", 30, func() fields {
			e := a.entry(2, "2", "1")
			e["slots"] = []any{fields{"seq": int64(3), "slot": int64(1)}}
			return e
		}(), ruleBeyond},
		"slots and gone alone": {"a segment was asked for again: one is sent, one is gone", 30, func() fields {
			e := a.entry(2, "2", "1")
			e["slots"] = []any{fields{"seq": int64(2), "slot": int64(9)}}
			e["gone"] = []any{int64(1)}
			return e
		}(), ""},
		"ended": {"the session ended there", 30, func() fields {
			e := a.entry(2, "2", "1")
			e["state"] = "Ended"
			return e
		}(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			session := fresh(t, "refused")
			must(t, a.apply(t.Context(), read(t, session), 10, a.entry(1, "1", "0")))
			must(t, a.apply(t.Context(), read(t, session), 20, a.entry(2, "2", "1")))
			must(t, b.apply(t.Context(), read(t, session), 30, b.entry(1, "b", "a")))
			before := read(t, session)
			err := a.apply(t.Context(), before, c.lines, c.entry)
			if c.want == "" {
				if err != nil {
					t.Errorf("%s: %v", c.reason, err)
				}
				return
			}
			if !broke(err, c.want) {
				t.Errorf("%s: got %v, want a refusal that says %q", c.reason, err, c.want)
			}
			if diff := cmp.Diff(before, read(t, session)); diff != "" {
				t.Errorf("a refused apply changed the object (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAnEntryCannotVanish(t *testing.T) {
	const a, b = machine("wks-a"), machine("wks-b")
	session := fresh(t, "vanish")
	must(t, a.apply(t.Context(), read(t, session), 10, a.entry(1, "1", "0")))
	must(t, b.apply(t.Context(), read(t, session), 20, b.entry(1, "b", "a")))
	// What a manager applied before and leaves out now is removed: its own
	// entry, and nobody else's.
	if err := a.apply(t.Context(), read(t, session), 10); !broke(err, ruleStays) {
		t.Errorf("an apply without its entry: got %v, want a refusal that says %q", err, ruleStays)
	}
	if diff := cmp.Diff(map[string]int64{"": 20, "wks-a": 10, "wks-b": 10}, uploaded(read(t, session))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestAnApplyOntoAnOldReadConflicts(t *testing.T) {
	const a, b = machine("wks-a"), machine("wks-b")
	session := fresh(t, "conflict")
	old := read(t, session)
	must(t, b.apply(t.Context(), old, 10, b.entry(1, "b", "a")))
	if err := a.apply(t.Context(), old, 10, a.entry(1, "1", "0")); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict: the sum was made from what is no longer there", err)
	}
}

func TestADeletedSessionIsNotRecreated(t *testing.T) {
	const a = machine("wks-a")
	session := fresh(t, "deleted")
	must(t, a.apply(t.Context(), read(t, session), 10, a.entry(1, "1", "0")))
	old := read(t, session)
	must(t, writerOf["Session"].Delete(t.Context(), old))

	err := a.apply(t.Context(), old, 20, a.entry(2, "2", "1"))
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want a conflict: a Session that a person deleted stays deleted", err)
	}
	if err := writerOf["Session"].Get(t.Context(), client.ObjectKeyFromObject(old), &v1alpha1.Session{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want it gone", err)
	}

	// Somebody made a Session of that name again: it is another one.
	again := fresh(t, "deleted")
	if err := a.apply(t.Context(), old, 20, a.entry(2, "2", "1")); !apierrors.IsConflict(err) {
		t.Errorf("onto its successor: got %v, want a conflict", err)
	}
	if got := read(t, again); len(got.Spec.Writers) != 0 {
		t.Errorf("the successor got the writers %v", got.Spec.Writers)
	}
}

// broke says whether the API server refused by a rule.
func broke(err error, rule string) bool {
	for _, cause := range causes(err) {
		if strings.HasSuffix(cause.Message, rule) {
			return true
		}
	}
	return false
}
