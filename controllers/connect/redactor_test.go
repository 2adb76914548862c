package connect

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
)

func TestATeamsOwnRules(t *testing.T) {
	builtIn, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	r := &Redactors{BuiltIn: builtIn}
	m := &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "u", Generation: 1}}
	if got, err := r.For(t.Context(), m); err != nil || got != builtIn {
		t.Errorf("without rules: %v, %v; want the built-in ones", got, err)
	}
	m.Generation = 2
	m.Spec.Capture.Redact = []v1alpha1.RedactionRule{
		{Name: "codename", Pattern: `\bMOONBEAM-\w+`},
		{Name: "fixture", Pattern: `AKIA[A-Z0-9]{16}`, Effect: v1alpha1.RedactionAllow},
	}
	team, err := r.For(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	clean, found := team.Text("We ship MOONBEAM-7 with the fixture AKIAQYLPMN5HHHFPZAM2 tonight.")
	if text := clean.String(); strings.Contains(text, "MOONBEAM") || !strings.Contains(text, "AKIAQYLPMN5HHHFPZAM2") || found["team-codename"] != 1 {
		t.Errorf("%q, %v; want the code name hidden and the fixture kept", text, found)
	}
	if again, _ := r.For(t.Context(), m); again != team {
		t.Error("the same generation is compiled twice")
	}
	m.Generation = 3
	m.Spec.Capture.Redact = []v1alpha1.RedactionRule{{Name: "open", Pattern: "("}}
	_, err = r.For(t.Context(), m)
	if e := outcome.Of(err); e == nil || e.Reason != v1alpha1.InvalidSpecReason || !strings.Contains(err.Error(), "spec.capture.redact") {
		t.Errorf("a rule that cannot be used: %v; want a stall that names the field", err)
	}
}
