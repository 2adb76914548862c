package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
)

// TestTheTeamsRulesOnAWorkstation: they hide what the built-in ones let pass, in
// a repository with rules of its own, too; and while they cannot be used
// there is nothing to read with.
func TestTheTeamsRulesOnAWorkstation(t *testing.T) {
	builtIn, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	home, repository := t.TempDir(), t.TempDir()
	git := filepath.Join(repository, ".git")
	for path, text := range map[string]string{
		filepath.Join(git, "HEAD"):                   "ref: refs/heads/main\n",
		filepath.Join(git, "config"):                 "[remote \"origin\"]\n\turl = https://git.example.com/a/b.git\n",
		filepath.Join(repository, ".undersong.yaml"): "redact: ['SUNRISE-\\w+']\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	view := status.OpenView(home)
	see := func(rules ...v1alpha1.RedactionRule) {
		t.Helper()
		m := &v1alpha1.TeamMemory{}
		m.Spec.Capture.Projects.Include = []string{"git.example.com/**"}
		m.Spec.Capture.Redact = rules
		if _, _, err := view.See(m); err != nil {
			t.Fatal(err)
		}
	}
	rules := newConsent(&settings{}, view)
	const text = "MOONBEAM-7 and SUNRISE-8 and nothing else"

	see()
	begin := func() *redact.Redactor {
		t.Helper()
		r, err := rules.begin(builtIn, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if clean, _ := begin().Text(text); clean.String() != text {
		t.Errorf("without rules: %q", clean)
	}
	see(v1alpha1.RedactionRule{Name: "codename", Pattern: `MOONBEAM-\w+`})
	if clean, _ := begin().Text(text); strings.Contains(clean.String(), "MOONBEAM") || !strings.Contains(clean.String(), "SUNRISE") {
		t.Errorf("the team's: %q", clean)
	}
	verdict := rules.decide(repository, "cli")
	if !verdict.Allowed || verdict.Redactor == nil {
		t.Fatalf("the repository is not heard with its own rules: %+v", verdict)
	}
	if clean, _ := verdict.Redactor.Text(text); strings.Contains(clean.String(), "MOONBEAM") || strings.Contains(clean.String(), "SUNRISE") {
		t.Errorf("the team's and the repository's: %q", clean)
	}
	see(v1alpha1.RedactionRule{Name: "open", Pattern: "("})
	if _, err := rules.begin(builtIn, nil); err == nil {
		t.Error("rules that cannot be used: there is a redactor all the same")
	}
	if again := status.OpenView(home); len(again.Rules()) != 1 {
		t.Errorf("after a restart: %v; want the rules that were last seen", again.Rules())
	}
}
