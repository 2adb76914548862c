package segment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKeys holds the keys still: objects are found by them for ever.
func TestKeys(t *testing.T) {
	chain := Start("s", "w")
	owner := "ff8d9819fc0e12bf0d24892e45987e24" // 128 bits of sha256("alice@example.com")
	cases := map[string]struct{ got, want string }{
		"Inbox":         {InboxKey("0b6f", 7), "inbox/0b6f/000000000007"},
		"InboxPrefix":   {InboxPrefix("0b6f"), "inbox/0b6f/"},
		"Archive":       {ArchiveKey("team", "alice@example.com", "s-1", "wks-1", 0, 12, chain), "archive/team/" + owner + "/s-1/wks-1/000000000012-" + chain.String() + ".jsonl.zst"},
		"ArchiveAnew":   {ArchiveKey("team", "alice@example.com", "s-1", "wks-1", 2, 12, chain), "archive/team/" + owner + "/s-1/wks-1/~2/000000000012-" + chain.String() + ".jsonl.zst"},
		"ArchivePrefix": {ArchivePrefix("team", "alice@example.com", "s-1"), "archive/team/" + owner + "/s-1/"},
		"Session":       {SessionKey("team", "alice@example.com", "s-1"), "archive/team/" + owner + "/s-1/session.json"},
		"Seen":          {SeenKey("team", "s-1", "abc"), "state/team/s-1/seen-abc"},
		"Parked":        {ParkedKey("team", "alice@example.com", "s-1", "wks-1", 0, 12), "archive/team/" + owner + "/s-1/parked-000000000012-wks-1"},
		"ParkedAnew":    {ParkedKey("team", "alice@example.com", "s-1", "wks-1", 1, 12), "archive/team/" + owner + "/s-1/parked-000000000012-wks-1~1"},
		"Trying":        {TryingKey("team", "s-1", "wks-1"), "state/team/s-1/trying-wks-1"},
		"Block":         {BlockKey("team", "abc"), "blocks/team/abc"},
		"Climbing":      {InboxKey("..", 1), "inbox/~5ec1f7e700f37c3d0b2981d04855fc34/000000000001"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzKeysStayUnderTheirPrefix: whatever the parts are, a key has the parts it
// should have, none of them climbs, and other parts give another key.
func FuzzKeysStayUnderTheirPrefix(f *testing.F) {
	for _, s := range []string{"team", "", ".", "..", "a/../b", "/", "a/b", "\x00", "~x", "Grüße", "a..b", strings.Repeat("x", 5000), "inbox\n"} {
		f.Add(s, "b", int64(1))
		f.Add("a", s, int64(-1))
	}
	f.Fuzz(func(t *testing.T, a, b string, n int64) {
		chain := Start(a, b)
		keys := map[string]struct {
			key, prefix string
			slashes     int
		}{
			"inbox":   {InboxKey(a, n), "inbox/", 2},
			"archive": {ArchiveKey(a, b, a, b, 0, n, chain), "archive/", 5},
			"anew":    {ArchiveKey(a, b, a, b, 3, n, chain), "archive/", 6},
			"session": {SessionKey(a, b, a), "archive/", 4},
			"seen":    {SeenKey(a, b, a), "state/", 3},
			"parked":  {ParkedKey(a, b, a, b, 0, n), "archive/", 4},
			"trying":  {TryingKey(a, b, a), "state/", 3},
			"block":   {BlockKey(a, b), "blocks/", 2},
		}
		for name, k := range keys {
			if !strings.HasPrefix(k.key, k.prefix) || strings.Count(k.key, "/") != k.slashes {
				t.Errorf("%s: %q has other parts", name, k.key)
			}
			for part := range strings.SplitSeq(k.key, "/") {
				if part == "" || part == "." || strings.Contains(part, "..") || len(part) > 255 {
					t.Errorf("%s: %q has a part %q", name, k.key, part)
				}
			}
			for _, c := range []byte(k.key) {
				if !alphanumeric(c) && !strings.ContainsRune("/.-_~", rune(c)) {
					t.Errorf("%s: %q has the byte %#x", name, k.key, c)
				}
			}
		}
		if !strings.HasPrefix(InboxKey(a, n), InboxPrefix(a)) {
			t.Errorf("%q is not under its own prefix", InboxKey(a, n))
		}
		if a != b && (InboxPrefix(a) == InboxPrefix(b) || ArchivePrefix(a, b, a) == ArchivePrefix(b, b, b) || ArchivePrefix(a, a, a) == ArchivePrefix(a, b, a)) {
			t.Errorf("%q and %q share a prefix", a, b)
		}
	})
}
