package transcript

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// StreamKind says whose talk a file holds.
type StreamKind int

// Kinds of streams.
const (
	// MainStream is the file of a session: a person and the assistant.
	MainStream StreamKind = iota
	// AgentStream is the file of a subagent: what looks like a person there is
	// another agent.
	AgentStream
)

// Speaker is who said something.
type Speaker string

// Speakers.
const (
	// User is a person.
	User Speaker = "user"
	// Assistant is the model.
	Assistant Speaker = "assistant"
	// Tool are calls of tools and what they gave: see Memory.
	Tool Speaker = "tool"
	// Thinking is what the model thought and did not say: see Memory.
	Thinking Speaker = "thinking"
)

// Entry is something that was said.
type Entry struct {
	// ID is the uuid of the record, "" if it has none (see ID).
	ID string
	// Speaker is who said it.
	Speaker Speaker
	// Text is what was said: not blank, without what the harness put around it,
	// images and documents as placeholders. It may hold any characters.
	Text string
}

// Placeholders of content that is no text.
const (
	imagePlaceholder    = "[image]"
	documentPlaceholder = "[document]"
)

// Entries returns the words of a record that belong to the given session, none
// if it holds no words. A sessionID of "" takes every record as the session's.
//
// Words are the text of user, assistant and queued_command records only. A
// user record counts when a person typed it, which its flags and its whole
// shape decide; in an AgentStream none does. Tool calls, tool results and
// thinking are not words.
func (r Record) Entries(kind StreamKind, sessionID string) []Entry {
	if !r.belongs(kind, sessionID) {
		return nil
	}
	var (
		text    string
		speaker Speaker
		space   [8]block
	)
	switch r.Type {
	case "user":
		if kind == AgentStream || !r.fromPerson() {
			return nil
		}
		speaker, text = User, r.userText(r.read(space[:]).blocks)
	case "attachment":
		if kind == AgentStream || r.Subtype != "queued_command" || !r.fromPerson() {
			return nil
		}
		speaker, text = User, r.queuedText(space[:])
	case "assistant":
		speaker, text = Assistant, r.assistantText(r.read(space[:]))
	}
	if text == "" {
		return nil
	}
	return []Entry{{ID: r.UUID, Speaker: speaker, Text: text}}
}

// belongs reports whether a record of a file is part of that file's talk. It is
// not when a writer's mistake put another session's record there, or when it is
// an agent's in the main file, as old releases wrote them.
func (r Record) belongs(kind StreamKind, sessionID string) bool {
	foreign := sessionID != "" && r.SessionID != "" && r.SessionID != sessionID
	return !foreign && (!r.Sidechain || kind == AgentStream)
}

// text returns what a string says. Unlike jsonline.Text it does not copy one twice
// only because its reader did not look for escapes.
func (r Record) text(v jsonline.Value) string {
	if v.Kind != jsonline.String {
		return ""
	}
	in := r.raw[v.Start+1 : v.End-1]
	if bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return string(in)
	}
	return string(jsonline.AppendText(make([]byte, 0, len(in)), r.raw, v))
}

// InlineAgent returns the stream of an agent whose talk lies in the file of the
// session, as releases 1.x wrote it, and whether the record is part of one: the
// agent's id where the record has one, else a name for all of them together. Its
// words are those of Entries for an AgentStream.
func (r Record) InlineAgent(kind StreamKind) (stream string, inline bool) {
	if kind == AgentStream || !r.Sidechain {
		return "", false
	}
	for i := range len(r.AgentID) {
		switch c := r.AgentID[i]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', i > 0 && (c == '-' || c == '_'):
		default:
			return inlineAgents, true
		}
	}
	if r.AgentID == "" || len(r.AgentID) > 64 {
		return inlineAgents, true
	}
	return "agent-" + r.AgentID, true
}

// inlineAgents is the stream of inline agents that are not told apart.
const inlineAgents = "agent-inline"

// synthetic reports whether the program wrote an assistant record itself, as
// the notice of an error.
func (r Record) synthetic(m message) bool {
	return r.APIError || jsonline.Is(r.raw, m.model, "<synthetic>")
}

// fromPerson reports whether the envelope of a user record lets it be a
// person's.
func (r Record) fromPerson() bool {
	if r.Meta || r.CompactSummary || r.TranscriptOnly {
		return false
	}
	if r.Origin != "" {
		return r.Origin == "human" // other kinds, known or not, are not people
	}
	return r.rowSource != "harness" && r.promptSource != "system"
}

// userText returns a person's words in the content of a message, "" if it has
// none.
func (r Record) userText(blocks []block) string {
	var (
		words  words
		result bool
	)
	for _, b := range blocks {
		switch b.kind {
		case stringBlock, textBlock:
			words.add(withoutReminders(r.text(b.text)))
		case imageBlock:
			words.placeholder(imagePlaceholder)
		case documentBlock:
			words.placeholder(documentPlaceholder)
		case toolResultBlock:
			result = true
		default: // nothing that a person says
		}
	}
	if result && !words.said {
		return "" // a picture beside a result is the tool's
	}
	text := words.String()
	if isEnvelope(text) || isInterruption(text) {
		return ""
	}
	return text
}

// queuedText returns the words of a prompt typed while the agent worked.
func (r Record) queuedText(space []block) string {
	prompt := member(r.raw, r.attachment, "prompt")
	mode := member(r.raw, r.attachment, "commandMode")
	if mode.Kind == jsonline.String && !jsonline.Is(r.raw, mode, "prompt") {
		return ""
	}
	if member(r.raw, r.attachment, "isMeta").Kind == jsonline.True {
		return ""
	}
	origin := member(r.raw, r.attachment, "origin")
	if origin.Kind == jsonline.Object && !jsonline.Is(r.raw, member(r.raw, origin, "kind"), "human") {
		return ""
	}
	blocks := space[:0]
	switch prompt.Kind {
	case jsonline.String:
		blocks = append(blocks, block{kind: stringBlock, text: prompt})
	case jsonline.Array:
		blocks, _ = walker{r.raw}.blocks(prompt.Start, blocks)
	default: // in a shape of a later release
	}
	return r.userText(blocks)
}

// assistantText returns what the model said, "" if the record holds no text of
// a model.
func (r Record) assistantText(m message) string {
	if r.synthetic(m) {
		return ""
	}
	var words words
	for _, b := range m.blocks {
		if b.kind == textBlock || m.bare {
			words.add(r.text(b.text))
		}
	}
	return words.String()
}

// words joins the blocks of a message.
type words struct {
	parts []string
	said  bool // some part is text
}

func (w *words) add(text string) {
	if !isBlank(text) {
		w.parts = append(w.parts, text)
		w.said = true
	}
}

func (w *words) placeholder(text string) { w.parts = append(w.parts, text) }

func (w *words) String() string {
	if len(w.parts) == 0 {
		return ""
	}
	return strings.TrimSpace(strings.Join(w.parts, "\n"))
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// injected are the elements that the harness puts beside a person's words.
var injected = []string{"system-reminder", "ide_opened_file", "ide_selection"}

// withoutReminders returns text without the closed elements of injected. A tag
// that is not closed is somebody's prose.
func withoutReminders(text string) string {
	if !strings.Contains(text, "<") {
		return text
	}
	for _, name := range injected {
		text = cutElements(text, "<"+name+">", "</"+name+">")
	}
	return text
}

func cutElements(text, open, closing string) string {
	if !strings.Contains(text, open) {
		return text
	}
	var kept strings.Builder
	for {
		before, rest, found := strings.Cut(text, open)
		if !found {
			break
		}
		_, after, found := strings.Cut(rest, closing)
		if !found {
			break
		}
		kept.WriteString(before)
		text = after
	}
	kept.WriteString(text)
	return kept.String()
}

// envelopes are the tags in which the harness writes down, as user records,
// what is no message: slash commands, shell commands and their output.
var envelopes = []string{
	"command-name", "command-message", "command-args", "command-contents",
	"local-command-caveat", "local-command-stdout", "local-command-stderr",
	"bash-input", "bash-stdout", "bash-stderr",
}

const taskNotification = "task-notification"

// isEnvelope reports whether the whole text is a harness envelope: it opens
// with one of its tags and closes with one. Behind a task notification the
// harness adds a hint in prose. A person who writes about a tag does not write
// only that.
func isEnvelope(text string) bool {
	if !strings.HasPrefix(text, "<") {
		return false
	}
	if strings.HasPrefix(text, "<"+taskNotification+">") {
		return strings.Contains(text, "</"+taskNotification+">")
	}
	opens, closes := false, false
	for _, name := range envelopes {
		opens = opens || strings.HasPrefix(text, "<"+name+">")
		closes = closes || strings.HasSuffix(text, "</"+name+">")
	}
	return opens && closes
}

// isInterruption reports whether the whole text is the mark that an interrupted
// turn leaves.
func isInterruption(text string) bool {
	return text == "[Request interrupted by user]" || text == "[Request interrupted by user for tool use]"
}

// Clone returns a Record that does not depend on the bytes it was read from.
func (r Record) Clone() Record {
	r.raw = bytes.Clone(r.raw)
	return r
}
