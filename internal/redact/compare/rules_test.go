package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lucasjones/reggen"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/undersong-dev/undersong/internal/redact"
)

// TestEveryRule makes up secrets for every rule of gitleaks that the redactor
// has taken over. What gitleaks finds in a text, the redactor takes out.
func TestEveryRule(t *testing.T) {
	r, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	tried, missed := 0, map[string]int{}
	for _, rule := range detector.Config.GetOrderedRules() {
		if rule.Regex == nil || left[rule.RuleID] != "" {
			continue // by the name of a file, or of a form that ours does not share
		}
		for n, made := 0, 0; n < 60 && made < 6; n++ {
			text := "before\n" + invent(t, rule, int64(n)) + "\nafter"
			if strings.ContainsAny(text, "\u017f\u212a") {
				continue // letters that are s and K to an expression without regard to case
			}
			secret := ""
			for _, f := range detector.DetectString(text) {
				if f.RuleID == rule.RuleID {
					secret = f.Secret
				}
			}
			if secret == "" {
				continue
			}
			made++
			tried++
			line, err := json.Marshal(map[string]any{"type": "user", "message": map[string]any{"content": text}})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := r.Line(line)
			var back struct{ Message struct{ Content string } }
			if err := json.Unmarshal([]byte(got.String()), &back); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(back.Message.Content, secret) {
				if missed[rule.RuleID]++; missed[rule.RuleID] == 1 {
					t.Errorf("%s: %q is left in %q", rule.RuleID, secret, back.Message.Content)
				}
			}
		}
	}
	t.Logf("%d secrets, %d rules with a miss", tried, len(missed))
	if tried < 800 {
		t.Errorf("%d secrets, want at least 800", tried)
	}
}

// invent makes up a text that a rule's expression matches.
func invent(t *testing.T, rule config.Rule, seed int64) string {
	t.Helper()
	g, err := reggen.NewGenerator(rule.Regex.String())
	if err != nil {
		t.Fatalf("%s: %v", rule.RuleID, err)
	}
	g.SetSeed(seed)
	return g.Generate(40)
}

// TestNothingToScan: this package's own files hold no token that a scanner
// takes for real: tests put theirs together when they run.
func TestNothingToScan(t *testing.T) {
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Base(path) == "go.sum" {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, f := range detector.DetectBytes(raw) {
			t.Errorf("%s:%d: %s", path, f.StartLine+1, f.RuleID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
