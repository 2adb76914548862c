package durable_test

import (
	"encoding/hex"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

func TestSafeName(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		id     string
		want   string
		err    error
	}{
		"uuid":        {reason: "ids stay legible", id: "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11", want: "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11"},
		"upper case":  {reason: "file names may ignore case", id: "Ab", want: "_41b"},
		"underscore":  {reason: "the escape escapes itself", id: "a_41", want: "a_5f41"},
		"parent":      {reason: "no way up", id: "..", want: "_2e_2e"},
		"separators":  {reason: "one name, no path", id: `a/b\c:d`, want: "a_2fb_5cc_3ad"},
		"device":      {reason: "Windows opens the device", id: "con", want: "_63on"},
		"device port": {reason: "Windows opens the device", id: "lpt1", want: "_6cpt1"},
		"not device":  {reason: "only the whole name is reserved", id: "console", want: "console"},
		"trailing":    {reason: "Windows drops final dots and blanks", id: "a. ", want: "a_2e_20"},
		"zero":        {reason: "ends a C string", id: "a\x00b", want: "a_00b"},
		"empty":       {reason: "there is no such file", id: "", err: durable.ErrName},
		"at the bound": {
			reason: "200 bytes leave room for more",
			id:     strings.Repeat("a", 200), want: strings.Repeat("a", 200),
		},
		"past the bound": {reason: "would not fit", id: strings.Repeat("a", 201), err: durable.ErrName},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := durable.SafeName(tc.id)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzSafeNameIsOneToOne: every name is safe, and decodes to its identifier.
func FuzzSafeNameIsOneToOne(f *testing.F) {
	for _, s := range []string{"a", "..", "con", "COM1", "a/b", "\xff", "é", "_63on"} {
		f.Add(s)
	}
	safe := regexp.MustCompile(`^([a-z0-9-]|_[0-9a-f]{2})+$`)
	escaped := regexp.MustCompile(`_[0-9a-f]{2}`)
	f.Fuzz(func(t *testing.T, id string) {
		name, err := durable.SafeName(id)
		if err != nil {
			if !errors.Is(err, durable.ErrName) {
				t.Fatalf("%q: %v", id, err)
			}
			return
		}
		if !safe.MatchString(name) || len(name) > 200 || durable.IsTemp(name) {
			t.Errorf("%q becomes %q", id, name)
		}
		back := escaped.ReplaceAllStringFunc(name, func(s string) string {
			b, err := hex.DecodeString(s[1:])
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		})
		if back != id {
			t.Errorf("%q becomes %q, which stands for %q", id, name, back)
		}
	})
}
