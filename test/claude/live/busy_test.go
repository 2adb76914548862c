//go:build envtest && linux

package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/test/claude"
	"github.com/undersong-dev/undersong/test/stack"
)

// keyUp is the key that takes a queued prompt back.
const keyUp = "\x1b[A"

// TestPromptsTypedWhileTheAssistantWorks types while an answer is under way:
// words that are queued and heard in the middle of the turn, and words that are
// taken back before anybody heard them, with the whisper that was printed for
// them. Then a person stops a tool.
func TestPromptsTypedWhileTheAssistantWorks(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	held := func(id, gate string) claude.Block {
		return claude.Block{Tool: "Bash", ID: id, Input: map[string]any{"command": "echo harbour"}, Hold: gate}
	}
	w.Model.Script(
		&claude.Rule{When: "BUSYONE", Tool: "Bash", Blocks: []claude.Block{{Text: "I am at work."}, held("toolu_q1", "one")}},
		&claude.Rule{When: "toolu_q1", Blocks: []claude.Block{{Text: "Both are heard."}}},
		&claude.Rule{When: "BUSYTWO", Tool: "Bash", Blocks: []claude.Block{{Text: "I work again."}, held("toolu_q2", "two")}},
		&claude.Rule{When: "toolu_q2", Blocks: []claude.Block{{Text: "One is heard."}}},
		&claude.Rule{When: "STOPME", Tool: "Bash", Blocks: []claude.Block{{Text: "This takes long."}, bash("toolu_q3", "echo begun > begun; sleep 60")}},
	)
	shows := func(k *talk, text string) {
		t.Helper()
		w.must(k.Until(ctx, within, text, func(screen string) bool { return strings.Contains(screen, text) }))
	}
	k := w.talk()
	w.must(k.Say(ctx, "BUSYONE go on"))
	shows(k, "I am at work.")
	w.must(k.Say(ctx, "and this as well"))
	w.must(k.Turn(ctx, func() error { w.Model.Release("one"); return nil }))
	session := k.Session()
	talk := []said{user("BUSYONE go on"), assistant("I am at work."), user("and this as well"), assistant("Both are heard.")}

	w.must(k.Say(ctx, "BUSYTWO go on"))
	shows(k, "I work again.")
	id := w.put(session)
	w.must(k.Say(ctx, "SORREL is not what I meant"))
	w.must(k.Type(keyUp))
	w.must(k.Until(ctx, within, "take back", func(screen string) bool {
		return strings.Contains(screen[strings.LastIndex(screen, "❯"):], "SORREL")
	}))
	w.must(k.Type("\x05\x15"))
	w.must(k.Turn(ctx, func() error { w.Model.Release("two"); return nil }))
	talk = append(talk, user("BUSYTWO go on"), assistant("I work again."), assistant("One is heard."))
	talk = append(talk, k.receives(id)...)

	w.must(k.After(ctx, "PreToolUse", func() error { return k.Say(ctx, "STOPME now") }))
	w.must(stack.Eventually(ctx, within, func() error { // the tool runs
		_, err := os.Stat(filepath.Join(w.cwd, "begun"))
		return err
	}))
	w.must(k.Type(claude.Escape))
	shows(k, "Interrupted")
	k.asks("after the stop")
	talk = append(talk, user("STOPME now"), assistant("This takes long."), user("after the stop"), assistant("Noted."))
	w.must(k.Hangup(ctx))
	w.arrives(session, talk)
	w.nowhere("SORREL")

	requests := w.Model.Requests()
	for i := range requests {
		if requests[i].Count("SORREL") > 0 {
			t.Error("the model heard what was taken back: this tests nothing")
		}
		if n := requests[i].Count(id); n > 1 {
			t.Errorf("request %d has the whisper %d times", i, n)
		}
	}
	w.must(stack.Eventually(ctx, within, func() error { return w.readToEnd(session) }))
}
