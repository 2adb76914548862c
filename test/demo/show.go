package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// show prints what a person would look at.
func (d *demo) show(ctx context.Context) error {
	for _, args := range [][]string{
		{"get", "sessions"},
		{"get", "workstations"},
		{"get", "teammemories"},
		{"get", "memoryblocks"},
	} {
		if err := d.kubectl(ctx, d.ada, args...); err != nil {
			return err
		}
	}
	d.line("\n  a TeamMemory is counted once a minute; an empty block has no BYTES. What the agent wrote:")
	if err := d.kubectl(ctx, d.ada, "get", "memoryblocks", "-o", `jsonpath={range .items[?(@.status.bytes>0)]}{.spec.project}{"  "}{.spec.label}: {.status.value}{"\n"}{end}`); err != nil {
		return err
	}
	name, err := d.sessionName(ctx, d.asked.ID)
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, d.bob, "get", "session", name, "-o", "jsonpath-as-json={.status.syncState}"); err != nil {
		return err
	}
	d.head("bob's local state files, as letta-ai/claude-subconscious reads them")
	for _, file := range []string{"conversations.json", "session-" + d.asked.ID + ".json"} {
		data, err := os.ReadFile(filepath.Join(d.asked.Cwd, ".letta", "claude", file))
		if err != nil {
			return err
		}
		d.line("  %s\n%s", file, indent(string(data)))
	}
	d.head("undersong status, on bob's workstation, in his checkout of lantern")
	text, err := d.bob.RunIn(ctx, d.asked.Cwd, "status")
	d.line("%s", indent(text))
	return err
}

// kubectl runs the real kubectl as the workstation's user and prints what it
// said.
func (d *demo) kubectl(ctx context.Context, w *stack.Workstation, args ...string) error {
	path, err := tools.Path("kubectl")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", w.Kubeconfig()}, args...)...)
	out, err := cmd.CombinedOutput()
	d.line("\n$ kubectl %s        # as %s\n%s", strings.Join(args, " "), w.User, indent(string(out)))
	return err
}

// sessionName is the name of the Session of a session id.
func (d *demo) sessionName(ctx context.Context, id string) (string, error) {
	sessions, err := d.team.Sessions(ctx)
	if err != nil {
		return "", err
	}
	for i := range sessions {
		if sessions[i].Spec.SessionID == id {
			return sessions[i].Name, nil
		}
	}
	return "", fmt.Errorf("there is no Session for %s", id)
}

// explain says how to use the stack of make dev.
func (d *demo) explain(ctx context.Context) {
	settings, err := d.ada.Run(ctx, "hooks")
	if err != nil {
		settings = err.Error()
	}
	var compact any
	if json.Unmarshal([]byte(settings), &compact) == nil {
		if text, err := json.MarshalIndent(compact, "  ", "  "); err == nil {
			settings = string(text)
		}
	}
	d.line(`
undersong is running. Behind it is a handful of rules, not a model:
"Note for the team: …" in a prompt is remembered, and a later prompt with the
same words is answered.

Look at it:
  export KUBECONFIG=%s
  kubectl get sessions,workstations,memoryblocks

Let Claude Code record for ada, in a checkout whose remote is below
git.example.com/lighthouse/ (for example: git remote add origin %s):
  export UNDERSONG_HOME=%s
  claude --settings '%s'

Ctrl-C stops everything and keeps the state.`, d.ada.Kubeconfig(), lantern, d.ada.State, settings)
}

// logs prints the end of every log, when something failed.
func (d *demo) logs(dir string) {
	var files []string
	for _, pattern := range []string{"logs/controller.log", "workstations/*/*/daemon.out", "workstations/*/*/state/daemon.log"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		files = append(files, found...)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || len(data) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		d.line("\n-- the end of %s\n%s", file, indent(strings.Join(lines[max(0, len(lines)-12):], "\n")))
	}
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}
