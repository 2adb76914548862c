package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// object writes a JSON object member by member, so that its lists need not be
// in memory.
type object struct {
	w   *bufio.Writer
	n   int
	err error
}

func (o *object) name(name string) {
	if o.n++; o.n > 1 {
		_ = o.w.WriteByte(',') // Flush says it
	}
	_, _ = fmt.Fprintf(o.w, "%q:", name) // Flush says it
}

func (o *object) value(name string, v any) {
	o.name(name)
	text, err := json.Marshal(v)
	o.err = errors.Join(o.err, err)
	_, _ = o.w.Write(text) // Flush says it
}

func (o *object) text(name, v string) {
	if v != "" {
		o.value(name, v)
	}
}

func (o *object) list(name string, l *list) {
	o.name(name)
	o.err = errors.Join(o.err, l.writeTo(o.w))
}

// writeJSON writes the inspection as one line.
func (i *inspection) writeJSON(w io.Writer) error {
	o := object{w: bufio.NewWriter(w)}
	_ = o.w.WriteByte('{') // Flush says it
	o.value("file", i.name)
	o.text("session_id", i.owner)
	kind := "session"
	if i.kind == transcript.AgentStream {
		kind = "subagent"
		id := i.agentID
		if id == "" {
			id = strings.TrimPrefix(i.stream, "agent-")
		}
		o.value("agent_id", id)
	}
	o.value("file_kind", kind)
	o.value("stream", i.stream)

	offset := i.cursor.Signature.Offset
	o.value("bytes", i.size)
	o.value("consumed_bytes", offset)
	o.value("tail_bytes", i.size-offset)
	o.value("complete_lines", i.cursor.Lines)
	o.list("bad_lines", i.bad)
	o.list("withheld_lines", i.withheld)

	o.list("conversation", i.conversation)
	o.list("texts", i.texts)
	o.text("first_prompt", i.firstPrompt)
	o.list("tool_calls", i.calls)
	o.list("tool_results", i.results)
	o.list("thinking", i.thinking)
	o.list("not_human", i.notHuman)
	o.list("summaries", i.summaries)
	o.list("sidechain", i.sidechain)
	o.list("abandoned", i.abandoned)
	o.list("foreign", i.foreign)
	o.text("foreign_session", i.foreignID)
	o.value("repeats_dropped", i.repeats)
	o.list("conflicts", i.disputed)
	if i.showsInherited() {
		o.list("inherited", i.inherited)
		o.list("new", i.fresh)
	}

	o.text("title", i.title)
	if i.title == "" {
		o.value("title_absent", true)
	}
	o.text("tag", i.tag)
	o.text("pull_request", i.pullRequest)
	o.text("branch", i.branch)
	o.text("forked_from", i.forkedFrom)
	o.text("continued_in", i.continuedIn)
	o.value("assistant_messages", i.usage.Messages())
	o.value("output_tokens_once_per_message", i.usage.OutputTokens())

	records, stubs := map[string]int64{}, map[string]int64{}
	for name, c := range i.census {
		records[name] = c.records
		if c.stub {
			stubs[name] = c.records
		}
	}
	o.value("records", records)
	o.value("stubs", stubs)
	o.value("findings", i.findings)
	if i.unknown == nil {
		i.unknown = []string{}
	}
	o.value("unknown_types", i.unknown)

	if i.leftover {
		o.value("left_behind", true)
	}
	if i.delta {
		o.value("generation", i.cursor.Generation)
		o.value("from_offset", i.from)
		o.list("adds", i.adds)
		o.list("supersedes", i.drops)
	}
	_, _ = o.w.WriteString("}\n") // Flush says it
	return errors.Join(o.err, o.w.Flush())
}

// showsInherited reports whether it is known what the session took over.
func (i *inspection) showsInherited() bool { return i.compared || i.inherited.n > 0 }

// table is what inspect says to people, of one file or many.
type table struct {
	rows   [][]string
	census map[string]*kindCount
	rules  map[string]int
	kinds  []kind
	notes  []string
	others int
	files  int
}

// add takes a file into the table.
func (t *table) add(i *inspection) {
	t.files++
	number := func(n int64) string { return fmt.Sprintf("%d", n) }
	session := safe(brief(i.owner, 64))
	if session == "" {
		session = "(none named)"
	}
	t.rows = append(t.rows, []string{
		safe(i.name), session, safe(i.stream), number(i.cursor.Lines), number(i.bad.n), number(i.size - i.cursor.Signature.Offset),
		number(i.users), number(i.assistants), number(i.characters), number(i.repeats), number(i.usage.OutputTokens()), safe(brief(i.title, 60)),
	})
	for name, c := range i.census {
		if t.census == nil {
			t.census = map[string]*kindCount{}
		}
		sum := t.census[name]
		if sum == nil {
			if len(t.census) >= maxKinds {
				name = "others"
			}
			if sum = t.census[name]; sum == nil {
				sum = &kindCount{stub: c.stub, withheld: c.withheld}
				t.census[name] = sum
			}
		}
		sum.records += c.records
		sum.bytes += c.bytes
	}
	for rule, n := range i.findings {
		if t.rules == nil {
			t.rules = map[string]int{}
		}
		t.rules[rule] += n
	}
	for n, k := range i.kinds() {
		if n == len(t.kinds) {
			t.kinds = append(t.kinds, kind{name: k.name})
		}
		t.kinds[n].records += k.records
	}
	t.note(i)
}

// kind is a number of records that have something in common.
type kind struct {
	name    string
	records int64
}

// kinds sorts the records by what they are good for.
func (i *inspection) kinds() []kind {
	return []kind{
		{"words of people", i.users},
		{"words of the assistant", i.assistants},
		{"calls of tools", i.calls.n},
		{"results of tools", i.results.n},
		{"thoughts", i.thinking.n},
		{"like a person's, but nobody's words", i.notHuman.n},
		{"summaries of what was compacted", i.summaries.n},
		{"agents' within the session's file", i.sidechain.n},
		{"another session's", i.foreign.n},
		{"on branches that a person left", i.abandoned.n},
		{"repeats of earlier ones", i.repeats},
		{"with the id of an earlier one and other content", i.disputed.n},
	}
}

// note says what is odd about a file.
func (t *table) note(i *inspection) {
	say := func(format string, args ...any) {
		t.notes = append(t.notes, safe(i.name)+": "+fmt.Sprintf(format, args...))
	}
	if i.delta && i.from > 0 {
		say("read on from byte %d: %s came", i.from, many(i.adds.n, "record")+" with words")
	}
	if i.delta && !i.old && i.cursor.Generation > 0 {
		say("does not begin with what was read before: read anew, as generation %d; %s with words came, %d are gone", i.cursor.Generation, many(i.adds.n, "record"), i.drops.n)
	}
	if i.leftover {
		say("is not the transcript of this session that was read before, which is still there: read by itself")
	}
	if len(i.badLines) > 0 {
		say("bad lines: %s", first(i.badLines, i.bad.n))
	}
	if len(i.tooLong) > 0 {
		say("lines of more than 32 MiB, which cannot be scanned and are withheld: %s", first(i.tooLong, i.withheld.n))
	}
	if i.showsInherited() {
		say("%s inherited from another session, %d new", many(i.inherited.n, "record"), i.fresh.n)
	}
	if len(i.unknown) > 0 {
		say("types that are not known: %s", safe(strings.Join(i.unknown, ", ")))
	}
	if i.forkedFrom != "" {
		say("forked from session %s", safe(brief(i.forkedFrom, 64)))
	}
	if i.continuedIn != "" {
		say("goes on in session %s", safe(brief(i.continuedIn, 64)))
	}
}

// first lists the first numbers of so many.
func first(numbers []int64, of int64) string {
	text := strings.Trim(fmt.Sprint(numbers), "[]")
	if of > int64(len(numbers)) {
		text += " …"
	}
	return text
}

// String is the table.
func (t *table) String() string {
	var b strings.Builder
	if t.files == 0 {
		b.WriteString("There is no transcript here.\n")
	} else {
		columns(&b, append([][]string{{
			"FILE", "SESSION", "STREAM", "LINES", "BAD", "TAIL BYTES", "PEOPLE", "ASSISTANT", "CHARACTERS", "REPEATS", "TOKENS", "TITLE",
		}}, t.rows...))
	}
	if len(t.census) > 0 {
		b.WriteString("\n")
		rows := [][]string{{"RECORDS", "COUNT", "BYTES", "LEAVES AS"}}
		for _, name := range slices.Sorted(maps.Keys(t.census)) {
			c := t.census[name]
			rows = append(rows, []string{safe(name), fmt.Sprintf("%d", c.records), fmt.Sprintf("%d", c.bytes), c.leaves()})
		}
		columns(&b, rows)
	}
	if len(t.census) > 0 {
		b.WriteString("\n")
		rows := [][]string{{"AMONG THEM", "COUNT"}}
		for _, k := range t.kinds {
			if k.records > 0 {
				rows = append(rows, []string{k.name, fmt.Sprintf("%d", k.records)})
			}
		}
		columns(&b, rows)
	}
	if len(t.rules) > 0 {
		b.WriteString("\n")
		rows := [][]string{{"REDACTED", "COUNT"}}
		for _, rule := range slices.Sorted(maps.Keys(t.rules)) {
			rows = append(rows, []string{safe(rule), fmt.Sprintf("%d", t.rules[rule])})
		}
		columns(&b, rows)
	}
	if len(t.notes) > 0 || t.others > 0 {
		b.WriteString("\n")
	}
	for _, note := range t.notes {
		b.WriteString(note + "\n")
	}
	if t.others > 0 {
		b.WriteString(many(int64(t.others), "file") + " beside those of subagents: no transcript, not read\n")
	}
	return b.String()
}

// brief returns the first n characters of a text.
func brief(text string, n int) string {
	if r := []rune(text[:min(len(text), 8*n)]); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
