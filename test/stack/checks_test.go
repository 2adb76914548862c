package stack

import (
	"testing"

	"github.com/undersong-dev/undersong/internal/letta/lettatest"
)

// TestEveryWordOnce: what the larger tests rely on says what is wrong.
func TestEveryWordOnce(t *testing.T) {
	conversations := []lettatest.Conversation{
		{Summary: "alpha/s1", Messages: []lettatest.Message{{Role: "user", Text: "one &lt;two&gt;"}, {Role: "assistant", Text: "an answer"}}},
		{Summary: "beta/s2", Messages: []lettatest.Message{{Role: "user", Text: "three, one"}}},
	}
	for name, tt := range map[string]struct {
		reason    string
		namespace string
		said      []string
		want      string
	}{
		"once":     {reason: "escapes are those of the rendering", namespace: "alpha", said: []string{"one", "<two>"}},
		"never":    {reason: "another namespace heard it", namespace: "alpha", said: []string{"three"}, want: "Letta has 0 times: three"},
		"twice":    {reason: "no namespace is all of them", said: []string{"three", "one"}, want: "Letta has 2 times: one"},
		"answered": {reason: "what it answered was not told to it", said: []string{"an answer"}, want: "Letta has 0 times: an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckTold(Told(conversations, tt.namespace), tt.said)
			if got := textOf(err); got != tt.want {
				t.Errorf("%s: got %q, want %q", tt.reason, got, tt.want)
			}
		})
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
