package consent_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/consent"
)

func TestNormalize(t *testing.T) {
	const want = "github.com/acme/api"
	for remote, want := range map[string]string{
		"https://github.com/acme/api.git":                    want,
		"https://github.com/acme/api":                        want,
		"https://github.com/acme/api/":                       want,
		"https://github.com//acme/./api.git/":                want,
		"HTTPS://GitHub.COM/Acme/API.git":                    want,
		"https://github.com:8443/acme/api.git":               want,
		"https://user:ghp_planted@github.com/acme/api.git":   want,
		"https://us@er:p@ss@github.com/acme/api":             want,
		"https://github.com/acme/api.git?token=planted#part": want,
		"https://github.com./acme/api":                       want,
		"http://github.com/acme/api":                         want,
		"git://github.com/acme/api.git":                      want,
		"ssh://git@github.com/acme/api.git":                  want,
		"ssh://git@github.com:22/acme/api.git":               want,
		"git+ssh://git@github.com/acme/api.git":              want,
		"git@github.com:acme/api.git":                        want,
		"git@github.com:/acme/api.git":                       want,
		"github.com:acme/api":                                want,
		"user:ghp_planted@github.com:acme/api.git":           want,
		" git@github.com:acme/api.git\n":                     want,
		"[git.example:2222]:acme/api":                        "git.example/acme/api",
		"https://github.com/%61cme/api":                      want,
		"https://dev.azure.com/acme/Team%20A/_git/api":       "dev.azure.com/acme/team~20a/_git/api",
		"git@git.sr.ht:~alice/api":                           "git.sr.ht/~alice/api",
		"https://gitlab.example/group/sub/sub/api.git":       "gitlab.example/group/sub/sub/api",
		"https://[2001:DB8::1]:8443/acme/api.git":            "2001~3adb8~3a~3a1/acme/api",
		"ssh://git@[::1]/acme/api":                           "~3a~3a1/acme/api",
		"git@[::1]:acme/api":                                 "~3a~3a1/acme/api",
		"https://github.com/acme/api.git.git":                want,
		"https://github.com/acme/api/.git":                   want,
		"https://github.com/acme/.github":                    "github.com/acme/.github",
		"https://github.com/acme/a.git.b":                    "github.com/acme/a.git.b",
		"https://github.com/acme/\u00e9\x00\u202e":           "github.com/acme/~c3~a9~00~e2~80~ae",
		"https://github.com/acme/100%":                       "github.com/acme/100~25",
		"https://github.com/" + strings.Repeat("a", 234):     "github.com/" + strings.Repeat("a", 234),
		"https://github.com/" + strings.Repeat("a", 242):     "github.com/" + strings.Repeat("a", 242),
	} {
		got, ok := consent.Normalize(remote)
		if got != want || !ok {
			t.Errorf("%q: %q, %v; want %q", remote, got, ok, want)
		}
	}
}

func TestNormalizeNamesNoHost(t *testing.T) {
	for remote, reason := range map[string]string{
		"":                               "nothing",
		"/srv/git/api.git":               "a path of this machine",
		"../api":                         "a path of this machine",
		"./a:b":                          "a slash before the colon",
		"api":                            "a path of this machine",
		"github.com/acme/api":            "a path of this machine, for git",
		`C:\src\api`:                     "a drive",
		"C:/src/api":                     "a drive",
		"file:///srv/git/api.git":        "a path of this machine",
		"FILE://github.com/acme/api":     "a path of this machine",
		"ext::sh -c 'curl evil' [x":      "a program",
		"fd::17/x":                       "a program",
		"https:///acme/api":              "no host",
		"https://user@/acme/api":         "no host",
		"https://github.com":             "no path",
		"https://github.com/.git":        "no path",
		"https://github.com/acme/../api": "names another repository than it says",
		"https://github.com/%2e%2e/api":  "names another repository than it says",
		"https://..%2f../acme/api":       "no host",
		"https://local/12345678":         "the host of projects without one",
		"git@host:":                      "no path",
		"git@host":                       "a path of this machine",
		"[::1":                           "not a remote",
		"https://" + strings.Repeat("a", 200) + "/acme/api": "no host is that long",
	} {
		if got, ok := consent.Normalize(remote); ok || got != "" {
			t.Errorf("%q (%s): %q, %v", remote, reason, got, ok)
		}
	}
}

// TestNormalizeKeepsProjectsApart: what is replaced or cut must not make one
// project of two, or an exclude would miss.
func TestNormalizeKeepsProjectsApart(t *testing.T) {
	seen := map[string]string{}
	for _, path := range []string{
		"a/b", "a-b", "a_b", "a%20b", "a.b", "a+b", "a~b", strings.Repeat("x", 300), strings.Repeat("x", 301),
	} {
		got, ok := consent.Normalize("https://h.example/" + path)
		if other, taken := seen[got]; !ok || taken {
			t.Errorf("%q and %q are both %q", path, other, got)
		}
		if len(path) >= 300 && len(got) != 253 {
			t.Errorf("%q: %d bytes, want 253", got, len(got))
		}
		seen[got] = path
	}
}

// FuzzNormalizeIsNormal: a normal form has only its characters, is bounded, and
// is its own normal form.
func FuzzNormalizeIsNormal(f *testing.F) {
	for _, s := range []string{
		"https://u:p@Host:1/a/b.git?q#f", "git@host:a/b", "[::1]:x", "ext::x", "ssh://[::1%25eth0]:2/~a/.git", "a@b:c@d:e/f",
		"https://h/..git", "https://h/a/..git/.git", "http://%2f/..", "h::", "://", "a:" + strings.Repeat("/", 300),
	} {
		f.Add(s)
	}
	normal := regexp.MustCompile(`^[a-z0-9._~/-]+$`)
	f.Fuzz(func(t *testing.T, remote string) {
		got, ok := consent.Normalize(remote)
		if !ok {
			if got != "" {
				t.Errorf("%q: %q, and no", remote, got)
			}
			return
		}
		if !normal.MatchString(got) || len(got) > 253 {
			t.Errorf("%q: %q", remote, got)
		}
		for part := range strings.SplitSeq(got, "/") {
			if part == "" || part == "." || part == ".." {
				t.Errorf("%q: %q has a part %q", remote, got, part)
			}
		}
		if again, ok := consent.Normalize("https://" + got); again != got || !ok {
			t.Errorf("%q: %q, and of that %q, %v", remote, got, again, ok)
		}
	})
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		glob, remote string
		want         bool
	}{
		{"github.com/acme/api", "github.com/acme/api", true},
		{"GitHub.com/Acme/API", "github.com/acme/api", true},
		{" github.com/acme/api ", "github.com/acme/api", true},
		{"github.com/acme/api", "github.com/acme/api2", false},
		{"github.com/acme/api", "github.com/acme", false},
		{"github.com/acme", "github.com/acme/api", false},
		{"github.com/acme/*", "github.com/acme/api", true},
		{"github.com/acme/*", "github.com/acme/team/api", false},
		{"github.com/acme/*", "github.com/acme", false},
		{"github.com/*/api", "github.com/acme/api", true},
		{"github.com/acme/a*i", "github.com/acme/api", true},
		{"github.com/acme/a*i", "github.com/acme/ai", true},
		{"github.com/acme/*-*-x", "github.com/acme/a-b-c-x", true},
		{"github.com/acme/*-*-x", "github.com/acme/a-x", false},
		{"github.com/acme/**", "github.com/acme/team/sub/api", true},
		{"github.com/acme/**", "github.com/acme", true},
		{"github.com/acme/**", "github.com/acme2/api", false},
		{"**", "anything/at/all", true},
		{"**/api", "github.com/acme/api", true},
		{"**/api", "github.com/acme/apis", false},
		{"github.com/**/api", "github.com/api", true},
		{"github.com/**/x/**/api", "github.com/a/x/b/x/c/api", true},
		{"github.com/**/x/**/api", "github.com/a/y/api", false},
		{"github.com/ac**me/api", "github.com/ac-me/api", true},
		{"github.com/ac**me/api", "github.com/ac/me/api", false},
		{"github.com/acme/ap?", "github.com/acme/api", false},
		{"github.com/acme/[a]pi", "github.com/acme/api", false},
		{"github.com", "evil.example/github.com", false},
		{"", "github.com/acme/api", false},
		{"*", "github.com/acme/api", false},
		{"github.com/acme/", "github.com/acme/api", false},
	} {
		if got := consent.Match(tc.glob, tc.remote); got != tc.want {
			t.Errorf("%q, %q: %v, want %v", tc.glob, tc.remote, got, tc.want)
		}
	}
}

// TestMatchIsFast: no pattern of a team makes the daemon think for long.
func TestMatchIsFast(t *testing.T) {
	stars := strings.Repeat("*a", 120) + "b"
	if consent.Match(stars, strings.Repeat("a", 253)) {
		t.Error("matched")
	}
	parts := strings.Repeat("**/a/", 50) + "b"
	if consent.Match(parts, strings.TrimSuffix(strings.Repeat("a/", 126), "/")) {
		t.Error("matched")
	}
}

// FuzzMatch: against the plainest way to say what a glob means.
func FuzzMatch(f *testing.F) {
	f.Add("a/**/b*c", "a/x/y/bzc")
	f.Add("**/*/**", "a")
	f.Fuzz(func(t *testing.T, glob, remote string) {
		if len(glob) > 30 || len(remote) > 30 || strings.ContainsAny(glob+remote, "\n") {
			return
		}
		glob, remote = strings.ToLower(strings.TrimSpace(glob)), strings.ToLower(remote)
		if got, want := consent.Match(glob, remote), slowParts(strings.Split(glob, "/"), strings.Split(remote, "/")); got != want {
			t.Errorf("%q, %q: %v, want %v", glob, remote, got, want)
		}
	})
}

func slowParts(glob, parts []string) bool {
	switch {
	case len(glob) == 0:
		return len(parts) == 0
	case glob[0] == "**":
		return slowParts(glob[1:], parts) || len(parts) > 0 && slowParts(glob, parts[1:])
	}
	return len(parts) > 0 && slowPart(glob[0], parts[0]) && slowParts(glob[1:], parts[1:])
}

func slowPart(glob, part string) bool {
	switch {
	case glob == "":
		return part == ""
	case glob[0] == '*':
		return slowPart(glob[1:], part) || part != "" && slowPart(glob, part[1:])
	}
	return part != "" && glob[0] == part[0] && slowPart(glob[1:], part[1:])
}

func TestProjectNeedsAnAbsolutePath(t *testing.T) {
	var f consent.Finder
	for _, cwd := range []string{"", ".", "../x", "~/x"} {
		if p, err := f.Project(cwd); err == nil {
			t.Errorf("%q: %v", cwd, p)
		}
	}
}

func TestOutside(t *testing.T) {
	var f consent.Finder
	dir := t.TempDir()
	p, err := f.Project(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Outside || p.Root != "" || !regexp.MustCompile(`^local/[0-9a-f]{8}$`).MatchString(p.Remote) || "local/"+p.Name != p.Remote {
		t.Errorf("%+v", p)
	}
	if again, err := f.Project(dir + "/."); err != nil || again != p {
		t.Errorf("again: %+v, %v", again, err)
	}
	if other, err := f.Project(filepath.Join(dir, "gone")); err != nil || other.Remote == p.Remote || !other.Outside {
		t.Errorf("a folder that does not exist: %+v, %v", other, err)
	}
	want := consent.Decision{Reason: consent.ReasonOutside, Project: p}
	if diff := cmp.Diff(want, f.Decide(dir, consent.Rules{Include: []string{"**"}})); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}
