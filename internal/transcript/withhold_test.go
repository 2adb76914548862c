package transcript

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWithout: what a policy does not hear is taken out of the line itself, and
// nothing else of it changes.
func TestWithout(t *testing.T) {
	const (
		thought = `{"type":"assistant","uuid":"a","x":1.50,"message":{"content":[{"type":"thinking","thinking":"hm \"so\"","signature":"c2ln"},{"type":"text","text":"Yes."}]}}`
		result  = `{"type":"user","uuid":"r","message":{"content":[{"type":"tool_result","tool_use_id":"near","content":"mine"},{"tool_use_id":"far","content":[{"type":"text","text":"theirs"}],"type":"tool_result"}]},"cwd":"/x"}`
	)
	for name, test := range map[string]struct {
		reason            string
		line              string
		policy            Policy
		want              string
		thoughts, results int
	}{
		"default thinking":    {"thinking is heard only where the team allows it", thought, Policy{}, `{"type":"assistant","uuid":"a","x":1.50,"message":{"content":[{"type":"thinking","thinking":"` + Withheld + `","signature":"c2ln"},{"type":"text","text":"Yes."}]}}`, 1, 0},
		"allowed thinking":    {"the whole line stays", thought, Policy{Thinking: true}, thought, 0, 0},
		"default results":     {"a local tool's result stays", result, Policy{}, `{"type":"user","uuid":"r","message":{"content":[{"type":"tool_result","tool_use_id":"near","content":"mine"},{"tool_use_id":"far","content":"` + Withheld + `","type":"tool_result"}]},"cwd":"/x"}`, 0, 1},
		"no results":          {"none stays", result, Policy{ToolResults: NoResults}, `{"type":"user","uuid":"r","message":{"content":[{"type":"tool_result","tool_use_id":"near","content":"` + Withheld + `"},{"tool_use_id":"far","content":"` + Withheld + `","type":"tool_result"}]},"cwd":"/x"}`, 0, 2},
		"all results":         {"all stay", result, Policy{ToolResults: AllResults}, result, 0, 0},
		"words alone":         {"nothing is to be done", `{"type":"user","message":{"content":"hi"}}`, Policy{ToolResults: NoResults}, `{"type":"user","message":{"content":"hi"}}`, 0, 0},
		"of another type":     {"only people's and the model's records hold such blocks", `{"type":"system","message":{"content":[{"type":"thinking","thinking":"x"}]}}`, Policy{}, `{"type":"system","message":{"content":[{"type":"thinking","thinking":"x"}]}}`, 0, 0},
		"nothing was thought": {"an empty thought is no finding", `{"type":"assistant","message":{"content":[{"type":"thinking","thinking":""}]}}`, Policy{}, `{"type":"assistant","message":{"content":[{"type":"thinking","thinking":""}]}}`, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			record, err := Parse([]byte(test.line))
			if err != nil {
				t.Fatal(err)
			}
			got, thoughts, results := record.Without(test.policy, func(id string) bool { return id == "near" })
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
			if thoughts != test.thoughts || results != test.results {
				t.Errorf("%s: %d thoughts and %d results, want %d and %d", test.reason, thoughts, results, test.thoughts, test.results)
			}
			if again, err := Parse(got); err != nil {
				t.Errorf("what is left is no record: %v", err)
			} else if entries := again.Memory(MainStream, "", Policy{Thinking: true, ToolResults: AllResults}, nil); test.thoughts > 0 {
				for _, e := range entries {
					if e.Speaker == Thinking {
						t.Errorf("what stands for a thought became memory: %q", e.Text)
					}
				}
			}
		})
	}
}
