package note

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestHookHome: what names the state directory to a hook is the command line that
// init wrote, or else the system's own records; a repository sets the environment.
func TestHookHome(t *testing.T) {
	passwd := filepath.Join(t.TempDir(), "passwd")
	mine := fmt.Sprintf("short:x\nother:x:%d:0::/home/other:/bin/sh\nada:x:%d:0:Ada,:/home/ada:/bin/sh\n", os.Getuid()+1, os.Getuid())
	for name, tc := range map[string]struct {
		reason   string
		args     []string
		accounts string
		home     string
		left     int
		err      bool
	}{
		"named":           {reason: "as init writes it", args: []string{"--home", "/s"}, accounts: mine, home: "/s"},
		"named and more":  {reason: "a status line", args: []string{"statusline", "--home=/s/../t"}, accounts: mine, home: "/t", left: 1},
		"not named":       {reason: "managed settings are for everybody", accounts: mine, home: "/home/ada/.local/state/undersong"},
		"named nothing":   {reason: "an argument is missing", args: []string{"--home"}, accounts: mine, home: "/home/ada/.local/state/undersong", left: 1},
		"relative":        {reason: "would move with the agent", args: []string{"--home", "../.."}, accounts: mine, err: true},
		"of a process":    {reason: "/proc/self/cwd is a relative path", args: []string{"--home", "/x/../proc/self/cwd/.u"}, accounts: mine, err: true},
		"elsewhere known": {reason: "only a directory service knows the user", accounts: "root:x:x:0::/r:\n", home: "/repository/.local/state/undersong"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(passwd, []byte(tc.accounts), 0o600); err != nil {
				t.Fatal(err)
			}
			was := accounts
			accounts = passwd
			t.Cleanup(func() { accounts = was })
			for _, name := range []string{HomeVariable, "HOME", "XDG_STATE_HOME"} {
				t.Setenv(name, "/repository")
			}
			home, left, err := HookHome(tc.args)
			if home != tc.home || len(left) != tc.left || (err != nil) != tc.err {
				t.Errorf("%s: %q, %q left, %v; want %q", tc.reason, home, left, err, tc.home)
			}
		})
	}
}
