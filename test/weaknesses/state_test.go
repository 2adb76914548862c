package weaknesses

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/agent/statefile"
)

// TestW03: at resume, /clear, compact and fork the plugin set its index back and
// sent and showed everything again. Here the files of a session stay as they are
// at every start, and reading goes on where it was.
func TestW03(t *testing.T) {
	d := sit(t)
	d.start()
	d.say(40)
	d.hook("Stop")
	d.spooled(40)
	d.must(statefile.Write(d.cwd, d.state()))
	d.must(statefile.WriteBlocks(d.cwd, d.session, map[string]string{"brief": "b"}))
	before := d.read(statefile.Path(d.cwd, d.session))
	d.whisper("w", "words", 1)
	if !strings.Contains(d.hook("UserPromptSubmit"), "words") {
		t.Fatal("not shown at all")
	}
	lines := int64(40)
	for _, source := range []string{"resume", "compact", "clear", "fork", "startup"} {
		for range 4 {
			d.hook("SessionStart", "source", source)
			if out := d.hook("UserPromptSubmit"); strings.Contains(out, "words") {
				t.Errorf("%s: shown again: %s", source, out)
			}
		}
		if after := d.read(statefile.Path(d.cwd, d.session)); after != before {
			t.Errorf("%s: the state file was %s and is %s", source, before, after)
		}
		d.say(2)
		d.hook("Stop")
		lines += 2
		d.spooled(lines)
	}
}

// TestW04: a prompt that ran while the worker wrote set the index back. Here any
// number of writers lose nothing.
func TestW04(t *testing.T) {
	d := sit(t)
	var group sync.WaitGroup
	group.Go(func() {
		for i := range int64(60) {
			s := d.state()
			s.LastProcessedIndex = i
			if err := statefile.Write(d.cwd, s); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 3 {
		group.Go(func() {
			for j := range 20 {
				if err := statefile.WriteBlocks(d.cwd, d.session, map[string]string{fmt.Sprintf("block%d-%d", i, j): "v"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		d.hook("UserPromptSubmit")
	}
	group.Wait()
	want := d.state()
	want.LastProcessedIndex = 59
	d.expectState(want)
	if blocks, err := statefile.Blocks(d.cwd, d.session); err != nil || len(blocks) != 60 {
		t.Errorf("%d of 60 blocks, %v", len(blocks), err)
	}
}

// TestW06: after a cd the plugin made a second state folder and sent everything
// again. State belongs to the session here, wherever the shell stands.
func TestW06(t *testing.T) {
	d := sit(t)
	d.start()
	d.say(20)
	d.hook("Stop")
	d.spooled(20)
	d.must(statefile.Write(d.cwd, d.state()))
	sub := filepath.Join(d.cwd, "cmd", "tool")
	d.must(os.MkdirAll(sub, 0o700))
	dir, err := statefile.Dir(sub, "", d.session, d.cwd)
	if err != nil || dir != d.cwd {
		t.Errorf("the state files of the session are looked for in %s, %v", dir, err)
	}
	d.say(2)
	d.hook("Stop", "cwd", sub)
	d.spooled(22)
	for name := range d.tree(sub) {
		t.Errorf("made below the subfolder: %s", name)
	}
}

// TestW10: the last answer is not in the file yet when Stop runs; the plugin sent
// it a turn late, or never. Here the daemon looks again a moment later, without
// any further hook.
func TestW10(t *testing.T) {
	d := sit(t)
	d.start()
	d.say(1)
	d.hook("UserPromptSubmit")
	d.spooled(1) // the daemon has begun, and nothing else lets it look
	d.say(2)
	d.hook("Stop")
	d.spooled(3) // read at the first look
	d.say(1)     // the answer, late
	d.spooled(4)
}

// TestW11: a state file that was half written made the plugin begin at -1. Here
// it is filled again from what the cluster says, wherever it was cut, and the
// damaged one is kept beside it.
func TestW11(t *testing.T) {
	d := sit(t)
	d.must(statefile.Write(d.cwd, d.state()))
	path := statefile.Path(d.cwd, d.session)
	whole := d.read(path)
	for cut := range len(whole) {
		d.file(path, whole[:cut])
		d.must(statefile.Write(d.cwd, d.state()))
		d.expectState(d.state())
		if kept := d.read(path + ".broken"); kept != whole[:cut] {
			t.Fatalf("cut at %d: kept %q", cut, kept)
		}
	}
}

// TestW12: the same damage of conversations.json left one session of three in it.
// Here each session enters itself again.
func TestW12(t *testing.T) {
	d := sit(t)
	var all []statefile.State
	for i := range 3 {
		s := d.state()
		s.SessionID, s.ConversationID = fmt.Sprintf("%d%s", i, d.session[1:]), fmt.Sprint("conv-", i)
		all = append(all, s)
	}
	shared := filepath.Join(d.cwd, ".letta", "claude", "conversations.json")
	for _, damage := range []string{"", "{", `{"a":`, "null", "[1]", "\x00\x00"} {
		d.file(shared, damage)
		for _, s := range all {
			d.must(statefile.Write(d.cwd, s))
		}
		var entries map[string]struct{ ConversationID, AgentID string }
		d.must(json.Unmarshal([]byte(d.read(shared)), &entries))
		for _, s := range all {
			if e := entries[s.SessionID]; e.ConversationID != s.ConversationID || e.AgentID != s.AgentID {
				t.Errorf("after %q: entry of %s is %+v", damage, s.SessionID, e)
			}
		}
	}
}

// TestW13: of two sessions that started at once in one project the plugin lost
// one. Here every entry is there.
func TestW13(t *testing.T) {
	d := sit(t)
	const sessions = 24
	var group sync.WaitGroup
	for i := range sessions {
		group.Go(func() {
			s := d.state()
			s.SessionID = fmt.Sprintf("%02d%s", i, d.session[2:])
			if err := statefile.Write(d.cwd, s); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	var entries map[string]any
	d.must(json.Unmarshal([]byte(d.read(filepath.Join(d.cwd, ".letta", "claude", "conversations.json"))), &entries))
	if len(entries) != sessions {
		t.Errorf("%d of %d entries", len(entries), sessions)
	}
}

// TestW16: a transcript that became shorter than the index was never sent again,
// silently. Here another file in its place is read from its beginning.
func TestW16(t *testing.T) {
	d := sit(t)
	d.start()
	d.say(50)
	d.hook("Stop")
	d.spooled(50)
	d.must(os.Remove(d.path))
	d.say(5)
	d.hook("Stop")
	d.spooled(55)
	// Overwritten in place, and longer than before: the size alone says nothing.
	d.file(d.path, "")
	d.say(9)
	d.hook("Stop")
	d.spooled(64)
}

// TestW27: when the agent changed in mid-session, the plugin went on posting to
// the old one's conversation. Here both files follow what the cluster says.
func TestW27(t *testing.T) {
	d := sit(t)
	d.must(statefile.Write(d.cwd, d.state()))
	moved := d.state()
	moved.ConversationID, moved.AgentID = "conv-2", "agent-2"
	d.must(statefile.Write(d.cwd, moved))
	d.expectState(moved)
	for _, path := range []string{statefile.Path(d.cwd, d.session), filepath.Join(d.cwd, ".letta", "claude", "conversations.json")} {
		if text := d.read(path); strings.Contains(text, "conv-1") || !strings.Contains(text, "conv-2") {
			t.Errorf("%s says %s", filepath.Base(path), text)
		}
	}
}

// TestW28: the plugin left transcripts and keys where every user of the machine
// could read them. Here every file is the user's alone, lies in the state
// directory or the session's own folder, and no log has a key in it.
func TestW28(t *testing.T) {
	d := sit(t)
	temp := filepath.Join(d.user, "tmp")
	d.must(os.MkdirAll(temp, 0o700))
	t.Setenv("TMPDIR", temp)
	t.Setenv("ANTHROPIC_API_KEY", "sk-planted-key")
	t.Setenv("CLAUDE_CODE_MESSAGING_TOKEN", "planted-token")
	withoutUmask(t)
	d.start()
	d.whisper("w", "words", 1)
	d.hook("SessionStart", "source", "startup")
	d.hook("UserPromptSubmit", "prompt", "planted prompt")
	d.hook("PreToolUse")
	d.say(3)
	d.hook("Stop")
	d.spooled(3)
	d.must(statefile.Write(d.cwd, d.state()))
	for dir := range map[string]bool{d.home: true, filepath.Join(d.cwd, ".letta"): true} {
		for name, mode := range d.tree(dir) {
			if mode.Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", filepath.Join(filepath.Base(dir), name), mode)
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil && strings.Contains(string(data), "planted") {
				t.Errorf("%s has a key or a prompt in it", name)
			}
		}
	}
	if left := d.tree(temp); len(left) > 0 {
		t.Errorf("in the temporary folder: %v", left)
	}
}

// TestW33: the plugin removed headings of the user's CLAUDE.md that it took for
// its own. Nothing but .letta/claude is ever written into a project here, and
// nothing into the user's own files.
func TestW33(t *testing.T) {
	d := sit(t)
	const own = "# Project Context\n<letta>\nold\n</letta>\nkeep this\n"
	files := []string{filepath.Join(d.cwd, ".claude", "CLAUDE.md"), filepath.Join(d.cwd, "CLAUDE.md"), filepath.Join(d.user, ".claude", "CLAUDE.md")}
	old := time.Now().Add(-time.Hour)
	for _, file := range files {
		d.file(file, own)
		d.must(os.Chtimes(file, old, old))
	}
	before := d.tree(d.cwd)
	d.start()
	d.hook("SessionStart", "source", "startup")
	d.hook("UserPromptSubmit")
	d.say(3)
	d.hook("Stop")
	d.spooled(3)
	d.must(statefile.Write(d.cwd, d.state()))
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || d.read(file) != own || !info.ModTime().Equal(old) {
			t.Errorf("%s was touched", file)
		}
	}
	for name := range d.tree(d.cwd) {
		if _, had := before[name]; !had && name != ".letta" && name != ".letta/claude" && !strings.HasPrefix(name, ".letta/claude/") {
			t.Errorf("written into the project: %s", name)
		}
	}
	if _, err := os.Stat(filepath.Join(d.cwd, ".letta", "claude", ".gitignore")); errors.Is(err, fs.ErrNotExist) {
		t.Error("the folder does not ignore itself")
	}
}
