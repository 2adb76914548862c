package claude

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Keys.
const (
	Enter  = "\r"
	Escape = "\x1b"

	clearLine = "\x05\x15" // Ctrl-E, Ctrl-U
)

// within bounds every wait for Claude Code.
const within = 60 * time.Second

// prompt stands before what a person types.
const prompt = "❯"

// again is after how long keys are sent once more.
const again = 3 * time.Second

// Talk is a person at a terminal with Claude Code. It needs a Witness.
type Talk struct {
	*Terminal
	home *Home
}

// Talk starts Claude Code in a folder, and returns when it can be typed at.
func (h *Home) Talk(ctx context.Context, dir string, args ...string) (*Talk, error) {
	if err := os.MkdirAll(filepath.Join(h.Dir, "tmp"), 0o700); err != nil {
		return nil, err
	}
	t, err := OpenTerminal(dir, h.Environ(), h.Program, append([]string{"--permission-mode", "default"}, args...)...)
	if err != nil {
		return nil, err
	}
	talk := &Talk{Terminal: t, home: h}
	err = t.Until(ctx, within, "start", func(screen string) bool {
		return strings.Contains(screen, prompt) && talk.Count("SessionStart") > 0
	})
	if err != nil {
		t.Close()
		return nil, err
	}
	return talk, nil
}

// Count returns how often the hooks of an event were called in this talk: by this
// process, and not by one that it started.
func (t *Talk) Count(event string) int {
	return t.count(func(c Call) bool { return c.Event == event })
}

func (t *Talk) count(fits func(Call) bool) int { return len(t.calls(fits)) }

func (t *Talk) calls(fits func(Call) bool) []Call {
	all, err := t.home.Witness.Calls()
	if err != nil {
		return nil // the next look tells
	}
	pid := strconv.Itoa(t.PID())
	return slices.DeleteFunc(all, func(c Call) bool { return c.Env["CLAUDE_PID"] != pid || !fits(c) })
}

// Session is the id of the session, "" before the first call of a hook.
func (t *Talk) Session() string {
	calls := t.calls(func(Call) bool { return true })
	if len(calls) == 0 {
		return ""
	}
	return calls[len(calls)-1].Session
}

// Enter types a line in the place of what stands there, and sends it. Keys that
// come while Claude Code draws itself are lost: it looks whether they are there.
func (t *Talk) Enter(ctx context.Context, text string, sent func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		if err := t.Type(clearLine + text); err != nil {
			return err
		}
		err := t.Until(ctx, again, "type "+text, func(screen string) bool { return inputLine(screen) == text })
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
	}
	for {
		if err := t.Type(Enter); err != nil {
			return err
		}
		err := t.Until(ctx, again, "send "+text, func(string) bool { return sent() })
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// inputLine is what stands where a person types.
func inputLine(screen string) string {
	at := strings.LastIndex(screen, prompt)
	if at < 0 {
		return ""
	}
	line, _, _ := strings.Cut(screen[at+len(prompt):], "\n")
	return strings.TrimSpace(strings.ReplaceAll(line, "\u00a0", " "))
}

// Say types a prompt, and returns when the hooks were asked about it.
func (t *Talk) Say(ctx context.Context, words string) error {
	asked := func(c Call) bool { return c.Event == "UserPromptSubmit" && c.Prompt == words }
	before := t.count(asked)
	return t.Enter(ctx, words, func() bool { return t.count(asked) > before })
}

// Ask says a prompt, and returns when the turn has ended.
func (t *Talk) Ask(ctx context.Context, words string) error {
	return t.Turn(ctx, func() error { return t.Say(ctx, words) })
}

// Turn does something, and returns when a turn has ended after it.
func (t *Talk) Turn(ctx context.Context, do func() error) error {
	return t.After(ctx, "Stop", do)
}

// After does something, and returns when the hooks of an event were called once
// more.
func (t *Talk) After(ctx context.Context, event string, do func() error) error {
	before := t.Count(event)
	if err := do(); err != nil {
		return err
	}
	return t.Until(ctx, within, event, func(string) bool { return t.Count(event) > before })
}

// Command types a slash command, and returns when the hooks of an event were
// called.
func (t *Talk) Command(ctx context.Context, command, event string) error {
	before := t.Count(event)
	return t.Enter(ctx, command, func() bool { return t.Count(event) > before })
}

// Hangup ends the talk as closing the window does.
func (t *Talk) Hangup(ctx context.Context) error {
	if err := t.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("hang up: %w", err)
	}
	return t.Gone(ctx, within)
}
