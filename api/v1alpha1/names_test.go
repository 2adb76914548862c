package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

func TestSessionName(t *testing.T) {
	// 8 hex digits of sha256("ada@example.com"), by sha256sum.
	const want = "8d1f0c52-6a1b-4f6e-9d3c-2b7e5a90c4f1-b5fc85e5"
	if got := v1alpha1.SessionName("8d1f0c52-6a1b-4f6e-9d3c-2b7e5a90c4f1", "ada@example.com"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if v1alpha1.SessionName("s", "ada") == v1alpha1.SessionName("s", "bob") {
		t.Error("two owners of one session id have one name")
	}
	// The longest session id that the CRD accepts.
	if got := v1alpha1.SessionName(strings.Repeat("a", 54), "ada"); len(got) != validation.DNS1123LabelMaxLength {
		t.Errorf("the longest name has %d characters, want %d", len(got), validation.DNS1123LabelMaxLength)
	}
}

func TestMemoryBlockName(t *testing.T) {
	for name, c := range map[string]struct {
		reason                 string
		memory, project, label string
		want                   string
	}{
		"plain":      {"readable", "alpha", "github.com/example/shop", "brief", "alpha-brief-"},
		"no project": {"the team's one agent", "alpha", "", "brief", "alpha-brief-"},
		"underscore": {"a name has none", "alpha", "", "open_items", "alpha-open-items-"},
		"longest":    {"cut before the hash", strings.Repeat("m", 40), "", strings.Repeat("l", 63), strings.Repeat("m", 40) + "-" + strings.Repeat("l", 13) + "-"},
		"cut at a dash": {
			"no name ends its head with one", strings.Repeat("m", 40), "", strings.Repeat("l", 12) + "_" + strings.Repeat("l", 50),
			strings.Repeat("m", 40) + "-" + strings.Repeat("l", 12) + "-",
		},
	} {
		got := v1alpha1.MemoryBlockName(c.memory, c.project, c.label)
		if !strings.HasPrefix(got, c.want) || len(got) != len(c.want)+8 {
			t.Errorf("%s (%s): got %s, want %s and 8 hex digits", name, c.reason, got, c.want)
		}
		if problems := validation.IsDNS1123Label(got); len(problems) > 0 {
			t.Errorf("%s (%s): %s: %v", name, c.reason, got, problems)
		}
	}
	for _, pair := range [][2]string{
		{v1alpha1.MemoryBlockName("m", "a", "brief"), v1alpha1.MemoryBlockName("m", "b", "brief")},
		{v1alpha1.MemoryBlockName("m", "a", "open_items"), v1alpha1.MemoryBlockName("m", "a", "open-items")},
		{v1alpha1.MemoryBlockName("m", "", "a"), v1alpha1.MemoryBlockName("m", "a", "")},
	} {
		if pair[0] == pair[1] {
			t.Errorf("two blocks have the name %s", pair[0])
		}
	}
}
