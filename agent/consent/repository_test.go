package consent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/consent"
)

// write makes a file and the folders above it.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// repository makes what git leaves behind for a repository with one remote.
func repository(t *testing.T, root, url string) {
	t.Helper()
	write(t, filepath.Join(root, ".git", "HEAD"), "ref: refs/heads/main\n")
	write(t, filepath.Join(root, ".git", "config"), "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = "+url+"\n")
}

// realTemp returns a temporary folder without symbolic links in its path.
func realTemp(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

const acme = "git@github.com:acme/api.git"

func api(root string) consent.Project {
	return consent.Project{Name: "api", Remote: "github.com/acme/api", Root: root}
}

func TestProject(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// make lays out the files and returns the folder asked for and the root
		// expected; an empty root expects no shared project.
		make func(t *testing.T, dir string) (cwd, root string)
	}{
		"root": {reason: "the plain case", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, acme)
			return dir, dir
		}},
		"below": {reason: "the agent changed its folder", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, acme)
			return filepath.Join(dir, "a", "b"), dir
		}},
		"inside .git": {reason: "part of the repository", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, acme)
			return filepath.Join(dir, ".git", "hooks"), dir
		}},
		"file as folder": {reason: "not a folder, and in one", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, acme)
			write(t, filepath.Join(dir, "file"), "")
			return filepath.Join(dir, "file"), dir
		}},
		"worktree": {reason: "its .git is a file", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, filepath.Join(dir, "main"), acme)
			private := filepath.Join(dir, "main", ".git", "worktrees", "feature")
			write(t, filepath.Join(private, "HEAD"), "ref: refs/heads/feature\n")
			write(t, filepath.Join(private, "commondir"), "../..\n")
			write(t, filepath.Join(dir, "feature", ".git"), "gitdir: "+private+"\n")
			return filepath.Join(dir, "feature", "src"), filepath.Join(dir, "feature")
		}},
		"submodule": {reason: "a project of its own, by a relative path", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, "git@github.com:acme/super.git")
			private := filepath.Join(dir, ".git", "modules", "sub")
			write(t, filepath.Join(private, "HEAD"), "")
			write(t, filepath.Join(private, "config"), "[remote \"origin\"]\nurl="+acme)
			write(t, filepath.Join(dir, "sub", ".git"), "gitdir: ../.git/modules/sub\r\n")
			return filepath.Join(dir, "sub"), filepath.Join(dir, "sub")
		}},
		"nested": {reason: "the inner one", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, "git@github.com:acme/outer.git")
			repository(t, filepath.Join(dir, "vendor", "api"), acme)
			return filepath.Join(dir, "vendor", "api", "x"), filepath.Join(dir, "vendor", "api")
		}},
		"symbolic link": {reason: "git, too, sees where it leads", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			if runtime.GOOS == "windows" {
				t.Skip("symbolic links need a privilege on Windows")
			}
			repository(t, filepath.Join(dir, "repo"), acme)
			write(t, filepath.Join(dir, "repo", "src", "x"), "")
			if err := os.Symlink(filepath.Join(dir, "repo", "src"), filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "link"), filepath.Join(dir, "repo")
		}},
		".git without HEAD": {reason: "git walks on", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, acme)
			write(t, filepath.Join(dir, "sub", ".git", "config"), "[remote \"origin\"]\nurl=git@github.com:acme/other")
			return filepath.Join(dir, "sub"), dir
		}},
		"broken submodule": {reason: "what was said in it is not its parent's", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, acme)
			write(t, filepath.Join(dir, "sub", ".git"), "gitdir: ../.git/modules/gone\n")
			return filepath.Join(dir, "sub"), ""
		}},
		"unreadable pointer": {reason: "what was said in it is not its parent's", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, acme)
			write(t, filepath.Join(dir, "sub", ".git"), strings.Repeat("x", 9000))
			return filepath.Join(dir, "sub"), ""
		}},
		"no remote": {reason: "nothing to share", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, "")
			return dir, ""
		}},
		"local remote": {reason: "nothing to share", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, "file:///srv/git/api.git")
			return dir, ""
		}},
		"huge configuration": {reason: "bounded", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			repository(t, dir, acme+"\n"+strings.Repeat("#", 1<<20))
			return dir, ""
		}},
		"configuration is a folder": {reason: "not what git wrote", make: func(t *testing.T, dir string) (string, string) {
			t.Helper()
			write(t, filepath.Join(dir, ".git", "HEAD"), "")
			write(t, filepath.Join(dir, ".git", "config", "x"), "")
			return dir, ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cwd, root := tc.make(t, realTemp(t))
			// Nothing may be resolved from where this process stands.
			elsewhere := realTemp(t)
			repository(t, elsewhere, "git@github.com:evil/trap.git")
			write(t, filepath.Join(elsewhere, "config"), "[remote \"origin\"]\nurl=git@github.com:evil/trap.git")
			t.Chdir(elsewhere)
			var f consent.Finder
			for range 2 { // the second time from memory
				got, err := f.Project(cwd)
				if err != nil {
					t.Fatal(err)
				}
				if root == "" {
					if !got.Outside || !strings.HasPrefix(got.Remote, "local/") {
						t.Errorf("%s: %+v", tc.reason, got)
					}
					continue
				}
				if diff := cmp.Diff(api(root), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestRemoteOfConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		config string
		want   string // a remote, or "" for none
	}{
		"origin is not first": {
			reason: "origin wins", config: "[remote \"up\"]\nurl = git@h.example:up/x\n[remote \"origin\"]\nurl = git@h.example:o/x\n", want: "h.example/o/x",
		},
		"no origin": {
			reason: "the first one", config: "[remote \"b\"]\nurl = git@h.example:b/x\n[remote \"a\"]\nurl = git@h.example:a/x\n", want: "h.example/b/x",
		},
		"two urls":      {reason: "git fetches from the first", config: "[remote \"origin\"]\nurl = git@h.example:a/x\nurl = git@h.example:b/x\n", want: "h.example/a/x"},
		"other case":    {reason: "names ignore case", config: "[REMOTE \"origin\"]\n\tURL=git@h.example:a/x", want: "h.example/a/x"},
		"old form":      {reason: "ignores case", config: "[remote.Origin]\nurl = git@h.example:a/x", want: "h.example/a/x"},
		"on one line":   {reason: "git reads it", config: "[remote \"origin\"] url = git@h.example:a/x", want: "h.example/a/x"},
		"quoted":        {reason: "quotes and comments", config: "[remote \"origin\"] ; c\nurl = \"git@h.example:a/x\" # c", want: "h.example/a/x"},
		"comment":       {reason: "not a value", config: "[remote \"origin\"]\n# url = git@h.example:a/x\n; url = git@h.example:a/x", want: ""},
		"continued":     {reason: "joined", config: "[remote \"origin\"]\nurl = git@h.ex\\\nample:a/x", want: "h.example/a/x"},
		"windows":       {reason: "line ends", config: "[remote \"origin\"]\r\nurl = git@h.example:a/x\r\n", want: "h.example/a/x"},
		"push url":      {reason: "another key", config: "[remote \"origin\"]\npushurl = git@h.example:a/x", want: ""},
		"other section": {reason: "not a remote", config: "[remote \"origin\"]\nfetch = x\n[submodule \"origin\"]\nurl = git@h.example:a/x", want: ""},
		"like origin":   {reason: "another name", config: "[remote \"origin2\"]\nurl=git@h.example:b/x\n[remotes \"origin\"]\nurl=git@h.example:a/x", want: "h.example/b/x"},
		"broken header": {reason: "what follows is nobody's", config: "[remote \"origin\"\nurl = git@h.example:a/x", want: ""},
		"binary":        {reason: "whatever it is", config: "\x00[\xff]=\n[]\n[\"", want: ""},
		"bracket name":  {reason: "within quotes", config: "[remote \"a]b\\\"\"]\nurl = git@h.example:a/x", want: "h.example/a/x"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realTemp(t)
			write(t, filepath.Join(dir, ".git", "HEAD"), "")
			write(t, filepath.Join(dir, ".git", "config"), tc.config)
			var f consent.Finder
			got, err := f.Project(dir)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" && !got.Outside || tc.want != "" && got.Remote != tc.want {
				t.Errorf("%s: %+v, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestAsGitReadsIt: git itself writes the configurations.
func TestAsGitReadsIt(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	dir := realTemp(t)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
		return strings.TrimSuffix(string(out), "\n")
	}
	run("init", "-q", "main")
	var f consent.Finder
	for _, path := range []string{
		"a/plain", "a/with space", "a/ leading and trailing ", `a/quote"d`, `a/back\slash`, "a/hash#x;y", "a/tab\tx", "a/é",
	} {
		url := "git@h.example:" + path
		run("-C", "main", "config", "remote.origin.url", url)
		want, ok := consent.Normalize(run("-C", "main", "config", "remote.origin.url"))
		got, err := f.Project(filepath.Join(dir, "main"))
		if err != nil || !ok || got.Remote != want {
			t.Errorf("%q: %+v, %v; want %q", url, got, err, want)
		}
	}
	run("-C", "main", "config", "remote.origin.url", acme)
	run("-C", "main", "commit", "-q", "--allow-empty", "-m", "first")
	run("-C", "main", "worktree", "add", "-q", "../feature")
	run("-C", "main", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", filepath.Join(dir, "main"), "sub")
	run("-C", "main/sub", "config", "remote.origin.url", "https://h.example/a/sub")
	for folder, want := range map[string]consent.Project{
		"feature":  api(filepath.Join(dir, "feature")),
		"main/sub": {Name: "sub", Remote: "h.example/a/sub", Root: filepath.Join(dir, "main", "sub")},
	} {
		got, err := f.Project(filepath.Join(dir, filepath.FromSlash(folder)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", folder, diff)
		}
	}
}

func TestFinderSeesChanges(t *testing.T) {
	dir := realTemp(t)
	cwd := filepath.Join(dir, "sub", "deep")
	var f consent.Finder
	remote := func() string {
		t.Helper()
		p, err := f.Project(cwd)
		if err != nil {
			t.Fatal(err)
		}
		return p.Remote
	}
	repository(t, dir, "git@h.example:a/one")
	if got := remote(); got != "h.example/a/one" {
		t.Errorf("first: %s", got)
	}
	repository(t, dir, "git@h.example:a/other")
	if got := remote(); got != "h.example/a/other" {
		t.Errorf("another remote: %s", got)
	}
	repository(t, filepath.Join(dir, "sub"), "git@h.example:a/inner")
	if got := remote(); got != "h.example/a/inner" {
		t.Errorf("a repository in between: %s", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	if got := remote(); got != "h.example/a/other" {
		t.Errorf("removed again: %s", got)
	}
}

func TestFinderIsBoundedAndSafe(t *testing.T) {
	dir := realTemp(t)
	var f consent.Finder
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 200 {
				root := filepath.Join(dir, string(rune('a'+n)), strings.Repeat("x", i+1))
				if err := os.MkdirAll(filepath.Join(root, ".git"), 0o700); err != nil {
					t.Error(err)
				}
				for name, content := range map[string]string{"HEAD": "", "config": "[remote \"origin\"]\nurl=" + acme} {
					if err := os.WriteFile(filepath.Join(root, ".git", name), []byte(content), 0o600); err != nil {
						t.Error(err)
					}
				}
				if p, err := f.Project(root); err != nil || p != api(root) {
					t.Errorf("%+v, %v", p, err)
				}
			}
		})
	}
	wg.Wait()
}
