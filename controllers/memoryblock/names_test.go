package memoryblock

import "testing"

// TestNames: what people are shown of a revision names it.
func TestNames(t *testing.T) {
	digest, git := "sha256:3c97137f4181332178b1195c8daf526d", "327f4892553f0123456789abcdef0123456789ab"
	for _, tt := range []struct {
		want, revision string
		is             bool
	}{
		{digest, digest, true},
		{"3c97137f4181", digest, true},
		{"3c97137f4181332", digest, true},
		{"327f4892553f", git, true},
		{git, git, true},
		{"generation-3", "generation-3", true},
		{"", digest, false},
		{"3c97137f418", digest, false},
		{"sha256:3c97137", digest, false},
		{"327f4892553f", digest, false},
	} {
		if names(tt.want, tt.revision) != tt.is {
			t.Errorf("%q names %q: want %v", tt.want, tt.revision, tt.is)
		}
	}
}
