package hook_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// agentProcess starts a process with an environment, and returns its id.
func agentProcess(t *testing.T, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat")
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	// Once it answers it has its environment: the system shows none before.
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(cmd.Process.Pid)
}

func TestASessionInASessionIsNested(t *testing.T) {
	inside := []string{"A=b", "CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=outer"}
	for name, tc := range map[string]struct {
		reason string
		marker string
		pid    string   // CLAUDE_PID
		env    []string // a process's that was started with it
		linux  bool     // only Linux shows the environment
		want   bool
	}{
		"a person's": {reason: "no sign at all"},
		"in a tool":  {reason: "the marker of another session", marker: "outer", want: true},
		"own marker": {reason: "a shell of the session itself", marker: session},
		"started inside": {
			reason: "a hook of another session started it: there is no marker", linux: true, want: true,
			env: inside,
		},
		"first variable": {
			reason: "where the variable stands does not matter", linux: true, want: true,
			env: inside[1:],
		},
		"a person's terminal": {
			reason: "the agent sets its own variables after its start",
			env:    []string{"A=CLAUDECODE=1", "B=CLAUDE_CODE_SESSION_ID="},
		},
		"gone":     {reason: "no such process", pid: "4194305"},
		"no pid":   {reason: "would be another file", pid: "self"},
		"its path": {reason: "would be another file", pid: "1/../self"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.linux && runtime.GOOS != "linux" {
				t.Skip("only Linux shows the environment that a process was started with")
			}
			home := configure(t, nil)
			t.Setenv("UNDERSONG_SESSION", tc.marker)
			t.Setenv("CLAUDE_PID", tc.pid)
			if tc.env != nil {
				t.Setenv("CLAUDE_PID", agentProcess(t, tc.env...))
			}
			run(event("UserPromptSubmit"))
			if got := notes(t, home); len(got) != 1 || got[0].Nested != tc.want {
				t.Errorf("%s: nested is not %v in %+v", tc.reason, tc.want, got)
			}
		})
	}
}

func TestTheMarkerIsLeftForTheShellsOfASession(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		event  string
		folder string // of the file
		want   string
	}{
		"start":        {reason: "what is started in it must know", event: "SessionStart", folder: session, want: "export A=b\nexport UNDERSONG_SESSION=" + session + "\n"},
		"prompt":       {reason: "the variable is of a start", event: "UserPromptSubmit", folder: session, want: "export A=b\n"},
		"another file": {reason: "a repository can set variables, and must not make us write", event: "SessionStart", folder: "home", want: "export A=b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			configure(t, nil)
			path := filepath.Join(t.TempDir(), tc.folder, "sessionstart-hook-0.sh")
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("export A=b\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("CLAUDE_ENV_FILE", path)
			run(event(tc.event))
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("%s: the file has %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
