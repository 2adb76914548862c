package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
)

// talk writes synthetic transcripts: in the shape that Claude Code writes, with
// invented words. The same seed gives the same bytes. Its memory does not depend
// on their size.
type talk struct {
	w       *bufio.Writer
	r       *rand.Rand
	written int64
	session string

	ids, messages, tools, seconds, turns int

	last   string   // the uuid of the record before, "" for none
	window [][]byte // short records of late, to be written again
	line   []byte
}

var vocabulary = strings.Fields(`gauge tide harbour pier estuary slipway buoy ferry lantern chart sluice weir mooring ebb flood spring neap
	table column export import retry cache index shard queue lease probe alarm monitor report draft`)

// writeTalk writes whole turns until the size is reached. A brief one has prompts
// and answers only.
func writeTalk(path string, size int64, seed uint64, brief bool) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	t := &talk{
		w: bufio.NewWriterSize(file, 1<<20), r: rand.New(rand.NewPCG(seed, 1)),
		session: fmt.Sprintf("1a46e000-0000-4000-8000-%012x", seed),
	}
	t.put(fmt.Appendf(nil, `{"type":"mode","mode":"normal","sessionId":%q}`, t.session))
	for t.written < size {
		if brief {
			t.brief()
		} else {
			t.turn()
		}
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	return file.Close()
}

func (t *talk) put(line []byte) {
	line = append(line, '\n')
	_, _ = t.w.Write(line) // Flush says it
	t.written += int64(len(line))
}

func (t *talk) words(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(vocabulary[t.r.IntN(len(vocabulary))])
	}
	return b.String()
}

// record writes one with the envelope that all of a talk have. What it holds is
// its members, each behind a comma.
func (t *talk) record(kind, holds string) {
	t.ids++
	t.seconds++
	parent := "null"
	if t.last != "" {
		parent = `"` + t.last + `"`
	}
	t.last = fmt.Sprintf("b1600001-0000-4000-8000-%012x", t.ids)
	s := t.seconds
	t.line = fmt.Appendf(t.line[:0],
		`{"parentUuid":%s,"isSidechain":false,"type":%q%s,"uuid":%q,"timestamp":"2026-10-%02dT%02d:%02d:%02d.%03dZ","userType":"external","entrypoint":"cli","cwd":"/srv/demo/lantern","sessionId":%q,"version":"2.1.300","gitBranch":"main"}`,
		parent, kind, holds, t.last, 1+s/86400%28, s/3600%24, s/60%60, s%60, t.ids%1000, t.session)
	if len(t.line) < 4096 {
		if len(t.window) == 40 {
			t.window = t.window[1:]
		}
		t.window = append(t.window, append([]byte(nil), t.line...))
	}
	t.put(t.line)
}

func (t *talk) user(content, more string) {
	t.record("user", `,"message":{"role":"user","content":`+content+`}`+more)
}

// message writes an API message, one line for each block.
func (t *talk) message(blocks ...string) {
	t.messages++
	out := 20 + t.r.IntN(200)
	for i, block := range blocks {
		stop := "null"
		if i == len(blocks)-1 {
			stop = `"end_turn"`
		}
		t.record("assistant", fmt.Sprintf(
			`,"message":{"model":"claude-demo-1","id":"msg_bench%08d","type":"message","role":"assistant","content":[%s],"stop_reason":%s,"stop_sequence":null,"usage":{"input_tokens":9,"cache_read_input_tokens":3000,"output_tokens":%d}},"requestId":"req_bench%08d","apiBlockIndex":%d`,
			t.messages, block, stop, out, t.messages, i))
	}
}

func text(s string) string { return fmt.Sprintf(`{"type":"text","text":%q}`, s) }

// pair is a call of a tool and its result, which stands there twice.
func (t *talk) pair() {
	t.tools++
	t.message(`{"type":"thinking","thinking":"","signature":"c2ln"}`,
		fmt.Sprintf(`{"type":"tool_use","id":"toolu_bench%08d","name":"Bash","input":{"command":"lantern %s"}}`, t.tools, t.words(3)))
	result := t.words(5 + t.r.IntN(115))
	t.user(fmt.Sprintf(`[{"tool_use_id":"toolu_bench%08d","type":"tool_result","content":%q}]`, t.tools, result),
		fmt.Sprintf(`,"toolUseResult":{"stdout":%q,"stderr":"","interrupted":false,"isImage":false}`, result))
}

func (t *talk) brief() {
	t.turns++
	t.user(fmt.Sprintf("%q", fmt.Sprintf("%s (turn %d)?", t.words(6), t.turns)), `,"promptSource":"typed","origin":{"kind":"human"}`)
	t.message(text(t.words(3)))
	t.state()
}

func (t *talk) state() {
	if t.turns%3 == 0 {
		t.put(fmt.Appendf(nil, `{"type":"ai-title","aiTitle":"Long talk, turn %d","sessionId":%q}`, t.turns, t.session))
		t.put(fmt.Appendf(nil, `{"type":"last-prompt","lastPrompt":"turn %d","leafUuid":%q,"sessionId":%q}`, t.turns, t.last, t.session))
	}
}

// turn is a prompt, calls of tools and an answer; at times a branch that the
// person leaves, a notification, a compaction after which records come again.
func (t *talk) turn() {
	t.turns++
	before := t.last
	left := t.turns%17 == 5
	t.user(fmt.Sprintf("%q", fmt.Sprintf("%s (turn %d)?", t.words(6), t.turns)), `,"promptSource":"typed","origin":{"kind":"human"}`)
	if !left {
		for range 1 + t.r.IntN(5) {
			t.pair()
		}
	}
	t.message(text(t.words(10 + t.r.IntN(190))))
	if t.turns%7 == 0 {
		t.user(fmt.Sprintf("%q", fmt.Sprintf("<task-notification>\n<task-id>b%d</task-id>\n</task-notification>", t.turns)), `,"origin":{"kind":"task-notification"}`)
		t.message(text("noted " + t.words(2)))
	}
	if t.turns%5 == 0 {
		t.record("attachment", `,"attachment":{"type":"task_reminder","content":[],"itemCount":0}`)
	}
	if left {
		t.last = before
	} else if t.turns%60 == 0 {
		old := t.last
		t.last = ""
		t.record("system", fmt.Sprintf(`,"subtype":"compact_boundary","content":"Conversation compacted","compactMetadata":{"trigger":"auto","preTokens":150000},"logicalParentUuid":%q`, old))
		t.user(fmt.Sprintf("%q", "This session is being continued from a previous conversation. Summary: "+t.words(40)), `,"isVisibleInTranscriptOnly":true,"isCompactSummary":true`)
		for _, line := range t.window {
			t.put(append([]byte(nil), line...))
		}
	}
	t.state()
}
