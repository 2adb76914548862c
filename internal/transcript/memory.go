package transcript

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// ToolResults says of which tools the results become memory.
type ToolResults int

// Values of ToolResults.
const (
	// LocalResults: of tools that look at or change the workstation's own files
	// and run its commands. What a web page or another server says is not taken:
	// it would speak to every colleague. A tool that is not known is not local.
	LocalResults ToolResults = iota
	// AllResults: of every tool.
	AllResults
	// NoResults: of none.
	NoResults
)

// Policy says what besides words becomes memory. The zero Policy is the default.
type Policy struct {
	// ToolResults says of which tools the results are taken. Calls always are.
	ToolResults ToolResults
	// Thinking takes what the model thought.
	Thinking bool
}

// Bounds of what tools say, in characters.
const (
	// callSize is that of the argument of a call.
	callSize = 200
	// resultHead and resultTail of a result are kept when it is longer than both.
	resultHead = 400
	resultTail = 200
)

// Tools remembers the names of the tools whose calls were seen: a result names
// only its call. The zero value is ready.
type Tools struct {
	names map[string]string // by id of the call
	order []string          // the ids, oldest first
}

// maxTools bounds the calls remembered. Results follow their calls closely.
const maxTools = 1 << 12

// Fold remembers the calls in a record.
func (t *Tools) Fold(r Record) {
	if r.Type != "assistant" {
		return
	}
	var space [8]block
	for _, b := range r.read(space[:]).blocks {
		if b.kind == toolUseBlock {
			t.add(r.text(b.id), r.text(b.name))
		}
	}
}

func (t *Tools) add(id, name string) {
	if _, known := t.names[id]; id == "" || name == "" || known {
		return // the first one stands
	}
	if t.names == nil {
		t.names = map[string]string{}
	}
	if len(t.order) >= maxTools {
		delete(t.names, t.order[0])
		t.order = t.order[1:]
	}
	t.names[id], t.order = name, append(t.order, id)
}

// Missing returns the calls whose results the record holds and that were not
// seen.
func (t *Tools) Missing(r Record) (ids []string) {
	if r.Type != "user" {
		return nil
	}
	var space [8]block
	for _, b := range r.read(space[:]).blocks {
		if id := r.text(b.call); b.kind == toolResultBlock && id != "" && t.names[id] == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// Len returns the number of calls that are remembered.
func (t *Tools) Len() int { return len(t.order) }

// Has reports whether a call was seen.
func (t *Tools) Has(id string) bool { return t.names[id] != "" }

// Memory returns what of a record becomes memory: its words, as Entries gives
// them, and in lines of the Speaker Tool the calls of tools, each with the
// argument that matters, and the results that the policy takes, head and tail.
// It tells tools the calls, so that later records' results find their names; nil
// knows none.
//
// What we have injected ourselves and what the harness reminds the model of is
// never part of it.
func (r Record) Memory(kind StreamKind, sessionID string, policy Policy, tools *Tools) []Entry {
	if tools == nil {
		tools = new(Tools)
	}
	said := r.Entries(kind, sessionID)
	for i := range said {
		said[i].Text = strings.TrimSpace(withoutMemory(said[i].Text))
	}
	if len(said) > 0 && said[0].Text == "" {
		said = nil
	}
	if !r.belongs(kind, sessionID) {
		return nil
	}
	var space [8]block
	switch r.Type {
	case "assistant":
		m := r.read(space[:])
		if r.synthetic(m) {
			return nil
		}
		return r.acts(m.blocks, said, policy, tools)
	case "user":
		if r.Meta || r.CompactSummary || r.TranscriptOnly {
			return nil // the results in it are none
		}
		if results := r.results(r.read(space[:]).blocks, policy, tools); results != "" {
			return append([]Entry{{ID: r.UUID, Speaker: Tool, Text: results}}, said...)
		}
	}
	return said
}

// acts adds to an assistant's words its thinking before and its calls behind.
func (r Record) acts(blocks []block, said []Entry, policy Policy, tools *Tools) []Entry {
	var thoughts, calls words
	for _, b := range blocks {
		switch b.kind {
		case thinkingBlock:
			if text := r.text(b.thinking); policy.Thinking && text != Withheld {
				thoughts.add(withoutMemory(text))
			}
		case toolUseBlock:
			name := r.text(b.name)
			tools.add(r.text(b.id), name)
			calls.add(r.call(name, b.input))
		default:
		}
	}
	var all []Entry
	if text := thoughts.String(); text != "" {
		all = append(all, Entry{ID: r.UUID, Speaker: Thinking, Text: text})
	}
	all = append(all, said...)
	if text := calls.String(); text != "" {
		all = append(all, Entry{ID: r.UUID, Speaker: Tool, Text: text})
	}
	return all
}

// arguments names, for tools that are known, the arguments that matter, the best
// first.
var arguments = map[string][]string{
	"Agent":           {"description"},
	"AskUserQuestion": {},
	"Bash":            {"command"},
	"BashOutput":      {"bash_id"},
	"Edit":            {"file_path"},
	"EnterWorktree":   {"name"},
	"ExitPlanMode":    {},
	"Glob":            {"pattern"},
	"Grep":            {"pattern"},
	"KillShell":       {"shell_id"},
	"LS":              {"path"},
	"MultiEdit":       {"file_path"},
	"NotebookEdit":    {"notebook_path"},
	"NotebookRead":    {"notebook_path"},
	"Read":            {"file_path"},
	"Skill":           {"skill", "command"},
	"SlashCommand":    {"command"},
	"Task":            {"description"},
	"TaskOutput":      {"task_id"},
	"TodoWrite":       {},
	"ToolSearch":      {"query"},
	"WebFetch":        {"url"},
	"WebSearch":       {"query"},
	"Write":           {"file_path"},
}

// local are the tools whose results are the workstation's own.
var local = map[string]bool{
	"Bash": true, "BashOutput": true, "Edit": true, "Glob": true, "Grep": true, "LS": true, "MultiEdit": true, "NotebookEdit": true,
	"NotebookRead": true, "Read": true, "Write": true,
}

// call is the line of a tool's call.
func (r Record) call(name string, input jsonline.Value) string {
	if name = oneLine(name, 64); name == "" {
		name = "?"
	}
	if arg := oneLine(withoutMemory(r.argument(name, input)), callSize); arg != "" {
		return "[tool " + name + ": " + arg + "]"
	}
	return "[tool " + name + "]"
}

// argument returns the argument of a call that matters: for a tool that is not
// known the shortest string, which names rather than holds.
func (r Record) argument(tool string, input jsonline.Value) string {
	if input.Kind != jsonline.Object {
		return ""
	}
	names, known := arguments[tool]
	best, rank, found := jsonline.Value{}, len(names), false
	w := walker{r.raw}
	for i, key := w.first(input.Start); i > 0; i, key = w.next(i) {
		v := w.whole(w.value(i))
		i = v.End
		if v.Kind != jsonline.String || v.End-v.Start <= 2 {
			continue
		}
		if known {
			for n, name := range names[:rank] {
				if name == string(key) {
					best, rank, found = v, n, true
				}
			}
			continue
		}
		if !found || v.End-v.Start < best.End-best.Start {
			best, found = v, true
		}
	}
	return r.text(best)
}

// results are the lines of the results in a user record.
func (r Record) results(blocks []block, policy Policy, tools *Tools) string {
	if policy.ToolResults == NoResults {
		return ""
	}
	var all words
	for _, b := range blocks {
		if b.kind != toolResultBlock {
			continue
		}
		name := tools.names[r.text(b.call)]
		if !local[name] && policy.ToolResults != AllResults {
			continue
		}
		text := headAndTail(withoutOurs(r.resultText(b.content)))
		if text == "" || text == Withheld {
			continue
		}
		if name = oneLine(name, 64); name == "" {
			name = "?"
		}
		if b.hasError {
			name += ", failed"
		}
		all.add("[result " + name + "]\n" + text)
	}
	return all.String()
}

// resultText is what a tool gave.
func (r Record) resultText(content jsonline.Value) string {
	switch content.Kind {
	case jsonline.String:
		return r.text(content)
	case jsonline.Array:
		var (
			all   words
			space [8]block
		)
		blocks, _ := walker{r.raw}.blocks(content.Start, space[:0])
		for _, b := range blocks {
			switch b.kind {
			case stringBlock, textBlock:
				all.add(r.text(b.text))
			case imageBlock:
				all.placeholder(imagePlaceholder)
			case documentBlock:
				all.placeholder(documentPlaceholder)
			default:
			}
		}
		return all.String()
	default: // missing, null, or in a shape of a later release
	}
	return ""
}

// withoutMemory returns text without our own closed elements. A tag that is not
// closed is somebody's prose.
func withoutMemory(text string) string {
	return cutOurs(text, false)
}

// withoutOurs returns what a tool gave without what was injected into it. Of our
// own element that is not closed the rest goes, too: nobody writes prose here,
// and tools cut what they give.
func withoutOurs(text string) string {
	return strings.TrimSpace(cutOurs(withoutReminders(text), true))
}

// memoryElement is the name of the element in which our own whispers and briefs
// stand.
const memoryElement = "team_memory"

// cutOurs cuts our elements, as they are and as files hold them: a transcript or
// the output of a hook that is read or searched has them in JSON, encoded once or
// more often.
func cutOurs(text string, open bool) string {
	if !strings.Contains(text, memoryElement) {
		return text
	}
	var kept strings.Builder
	for {
		before, after, bracket := cutTag(text)
		if bracket == "" {
			break
		}
		end := closingTag(after, bracket)
		if end < 0 {
			if !open {
				break
			}
			end = len(after)
		}
		kept.WriteString(before)
		text = after[end:]
	}
	kept.WriteString(text)
	return kept.String()
}

// cutTag cuts text around the first opening tag of our element, and returns the
// bracket that opens it, "" if there is none.
func cutTag(text string) (before, after, bracket string) {
	for from := 0; ; {
		n := strings.Index(text[from:], memoryElement)
		if n < 0 {
			return text, "", ""
		}
		at := from + n
		from = at + len(memoryElement)
		bracket = openBracket(text[:at])
		if bracket == "" {
			continue
		}
		// A word ends here: by a blank, the bracket, or an escape of either.
		if from == len(text) || strings.IndexByte(" \t\r\n>\\&", text[from]) >= 0 {
			return text[:at-len(bracket)], text[from:], bracket
		}
	}
}

// openBracket returns the bracket at the end of text, as it is written there, ""
// if there is none.
func openBracket(text string) string {
	const html = "&lt;"
	switch n := len(text); {
	case strings.HasSuffix(text, "<"):
		return "<"
	case strings.HasSuffix(text, html):
		return html
	case n > 5 && strings.EqualFold(text[n-5:], "u003c"):
		first := n - 5
		for first > 0 && text[first-1] == '\\' {
			first--
		}
		if first < n-5 {
			return text[first:]
		}
	}
	return ""
}

// closingTag returns the position behind the first closing tag whose bracket is
// written as the opening one's is; -1 if there is none. What is said inside has
// its brackets encoded once more.
func closingTag(text, bracket string) int {
	for from := 0; ; {
		n := strings.Index(text[from:], bracket)
		if n < 0 {
			return -1
		}
		at := from + n
		from = at + len(bracket)
		if at > 0 && text[at-1] == '\\' && bracket[0] == '\\' {
			continue // encoded once more
		}
		rest := strings.TrimLeft(text[from:], `\`)
		if !strings.HasPrefix(rest, "/"+memoryElement) {
			continue
		}
		rest = rest[1+len(memoryElement):]
		end := strings.TrimLeft(rest, `\`)
		for _, tag := range []string{">", "&gt;", "u003e", "u003E"} {
			if strings.HasPrefix(end, tag) {
				return len(text) - len(end) + len(tag)
			}
		}
	}
}

// oneLine returns the beginning of text in one line, without what would end the
// brackets around it unseen, at most limit characters and a mark of redaction
// that they would cut.
func oneLine(text string, limit int) string {
	if len(text) > 8*limit { // enough, whatever the characters
		text = head(text, 4*limit)
	}
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c)
	}), " ")
	if cut := head(text, limit); len(cut) < len(text) {
		return cut + "…"
	}
	return text
}

// headAndTail returns a long text without its middle, and says how much that is
// and how many redacted places are in it.
func headAndTail(text string) string {
	if len(text) <= resultHead+resultTail || utf8.RuneCountInString(text) <= resultHead+resultTail {
		return text
	}
	first := head(text, resultHead)
	last := tail(text[len(first):], resultTail)
	middle := text[len(first) : len(text)-len(last)]
	if middle == "" {
		return text
	}
	gap := "[… " + strconv.Itoa(utf8.RuneCountInString(middle)) + " characters left out"
	if n := strings.Count(middle, redacted); n > 0 {
		gap += ", " + strconv.Itoa(n) + " redacted"
	}
	return first + "\n" + gap + " …]\n" + last
}

// redacted begins the mark that stands where something was redacted; maxMark is
// more than the length of any.
const (
	redacted = "[redacted:"
	maxMark  = 64
)

// head returns the first n characters, and the whole of a mark that they would
// cut.
func head(text string, n int) string {
	end := len(text)
	for i := range text {
		if n == 0 {
			end = i
			break
		}
		n--
	}
	if i := strings.LastIndex(text[max(0, end-maxMark):min(len(text), end+len(redacted)-1)], redacted); i >= 0 {
		i += max(0, end-maxMark)
		if stop := strings.IndexByte(text[i:min(len(text), i+maxMark)], ']'); i < end && stop >= 0 {
			end = max(end, i+stop+1)
		}
	}
	return text[:end]
}

// tail returns the last n characters, and the whole of a mark that they would
// cut.
func tail(text string, n int) string {
	start := len(text)
	for n > 0 && start > 0 {
		_, size := utf8.DecodeLastRuneInString(text[:start])
		start -= size
		n--
	}
	if i := strings.LastIndex(text[max(0, start-maxMark):min(len(text), start+len(redacted)-1)], redacted); i >= 0 {
		i += max(0, start-maxMark)
		if stop := strings.IndexByte(text[i:min(len(text), i+maxMark)], ']'); i < start && i+stop >= start {
			start = i
		}
	}
	return text[start:]
}
