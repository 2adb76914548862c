package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

const (
	// folder is where the plugin looks, below the base folder.
	folder = ".letta/claude"

	conversationsFile = "conversations.json"
	ignoreFile        = ".gitignore"

	// maxFile bounds a file, in bytes: block values are in it.
	maxFile = 16 << 20

	// blocksKey is the member of a session's file that the plugin compares
	// blocks with.
	blocksKey = "lastBlockValues"

	// jsTime is how JavaScript writes a time.
	jsTime = "2006-01-02T15:04:05.000Z"
)

// State is what the two files say of one session.
type State struct {
	// SessionID is the session's id.
	SessionID string

	// ConversationID and AgentID are Letta's. Empty: not known yet, and what
	// the files have is kept.
	ConversationID string
	AgentID        string

	// LastProcessedIndex is the position, from 0, of the last line processed
	// among the transcript's lines that are JSON. -1: none.
	LastProcessedIndex int64

	// Wrote is the index that Write was given last; nil: not known. An index in
	// the file that is higher than ours and not this one stays.
	Wrote *int64

	// LastSeenMessageID is the id of the newest message that was shown. Empty:
	// what the file has is kept.
	LastSeenMessageID string

	// StartedAt is when the session started. It is written where the file has
	// none. Zero: not known.
	StartedAt time.Time
}

// writing keeps two sessions of one folder from losing each other's entry in
// the file they share.
var writing sync.Mutex

// Write enters a session's state into the files below a base folder, which must
// exist. Everything else in them is kept: other sessions, lastBlockValues, and
// keys that we do not know. Files that are right already are not touched.
func Write(dir string, s State) error {
	return write(dir, s.SessionID, func(root *os.Root) error {
		// The session first: the plugin finds the conversation there, too.
		if err := update(root, sessionFile(s.SessionID), s.session); err != nil {
			return err
		}
		return update(root, conversationsFile, s.conversation)
	})
}

// write makes the folder, and changes what is in it.
func write(dir, sessionID string, change func(*os.Root) error) error {
	if !note.ValidSession(sessionID) {
		return ErrSession
	}
	writing.Lock()
	defer writing.Unlock()

	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open base folder: %w", err)
	}
	defer func() { _ = root.Close() }() // each write is complete by itself
	if err := root.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	if _, err := root.Lstat(path.Join(folder, ignoreFile)); errors.Is(err, fs.ErrNotExist) {
		if err := durable.WriteFileIn(root, path.Join(folder, ignoreFile), []byte("*\n")); err != nil {
			return fmt.Errorf("write %s: %w", ignoreFile, err)
		}
	}
	return change(root)
}

// Read returns what the files below a base folder say of a session. It returns
// fs.ErrNotExist when there is no file of the session, and ErrBroken when it
// cannot be parsed; then, too, what the other file says is there, and
// LastProcessedIndex is -1.
func Read(dir, sessionID string) (State, error) {
	s := State{SessionID: sessionID, LastProcessedIndex: -1}
	if !note.ValidSession(sessionID) {
		return s, ErrSession
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return s, fmt.Errorf("open base folder: %w", err)
	}
	defer func() { _ = root.Close() }() // only read

	var shared, own object
	shared, _, err = load(root, conversationsFile)
	if err == nil {
		entry := readEntry(shared[sessionID])
		s.ConversationID, s.AgentID = entry.ConversationID, entry.AgentID
	}
	own, _, err = load(root, sessionFile(sessionID))
	if err != nil {
		return s, fmt.Errorf("read state of session: %w", err)
	}
	if id := own.text("conversationId"); id != "" {
		s.ConversationID = id // what the plugin asks first
	}
	s.LastSeenMessageID = own.text("lastSeenMessageId")
	if at, err := time.Parse(time.RFC3339, own.text("startedAt")); err == nil {
		s.StartedAt = at.UTC()
	}
	if index, ok := own.index(); ok {
		s.LastProcessedIndex = index
	}
	return s, nil
}

// WriteBlocks enters which values of blocks the session was shown, beside those
// of other labels. The plugin compares with them: where they are missing, it
// shows all blocks.
func WriteBlocks(dir, sessionID string, blocks map[string]string) error {
	return write(dir, sessionID, func(root *os.Root) error {
		return update(root, sessionFile(sessionID), func(o object) error {
			known := map[string]json.RawMessage{}
			_ = json.Unmarshal(o[blocksKey], &known) // what is no object starts over
			if known == nil {
				known = map[string]json.RawMessage{}
			}
			for label, value := range blocks {
				object(known).set(label, value)
			}
			o.set(blocksKey, known)
			o.set("sessionId", sessionID)
			if _, ok := o.index(); !ok {
				o.set("lastProcessedIndex", -1)
			}
			return nil
		})
	})
}

// Blocks returns the values of blocks that the session was shown. It returns
// fs.ErrNotExist and ErrBroken as Read does.
func Blocks(dir, sessionID string) (map[string]string, error) {
	if !note.ValidSession(sessionID) {
		return nil, ErrSession
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open base folder: %w", err)
	}
	defer func() { _ = root.Close() }() // only read
	own, _, err := load(root, sessionFile(sessionID))
	if err != nil {
		return nil, fmt.Errorf("read state of session: %w", err)
	}
	var raw map[string]any
	_ = json.Unmarshal(own[blocksKey], &raw) // another type is as good as none
	blocks := map[string]string{}
	for label, value := range raw {
		if text, ok := value.(string); ok {
			blocks[label] = text
		}
	}
	return blocks, nil
}

// session enters the state into the session's own file.
func (s State) session(o object) error {
	o.set("sessionId", s.SessionID)
	s.setIndex(o)
	if s.ConversationID != "" {
		o.set("conversationId", s.ConversationID)
	}
	if s.LastSeenMessageID != "" {
		o.set("lastSeenMessageId", s.LastSeenMessageID)
	}
	if !s.StartedAt.IsZero() && o.text("startedAt") == "" {
		o.set("startedAt", s.StartedAt.UTC().Format(jsTime))
	}
	return nil
}

// setIndex enters how far we are, unless the plugin is further: an index above
// ours that we did not write ourselves is its own, and lower it would send again
// what it has sent. Ours may fall, when the transcript was replaced.
func (s State) setIndex(o object) {
	index := max(s.LastProcessedIndex, -1)
	if had, ok := o.index(); ok && had > index && (s.Wrote == nil || *s.Wrote != had) {
		return
	}
	o.set("lastProcessedIndex", index)
}

// entry is a session's in conversations.json.
type entry struct {
	ConversationID string `json:"conversationId"`
	AgentID        string `json:"agentId"`
}

// conversation enters the state into the file of all sessions. An entry needs
// both ids: for one without an agent the plugin would open a new conversation.
func (s State) conversation(o object) error {
	raw := o[s.SessionID]
	known := readEntry(raw)
	if s.ConversationID != "" {
		known.ConversationID = s.ConversationID
	}
	if s.AgentID != "" {
		known.AgentID = s.AgentID
	}
	if known.ConversationID == "" || known.AgentID == "" {
		return errNothing
	}
	fields := object{}
	_ = json.Unmarshal(raw, &fields) // what is no object has no keys to keep
	if fields == nil {
		fields = object{} // null
	}
	fields.set("conversationId", known.ConversationID)
	fields.set("agentId", known.AgentID)
	o.set(s.SessionID, fields)
	return nil
}

// readEntry reads an entry, or the bare conversation id of earlier versions.
func readEntry(raw json.RawMessage) entry {
	var e entry
	if json.Unmarshal(raw, &e) == nil {
		return e
	}
	var id string
	_ = json.Unmarshal(raw, &id) // neither: there is no entry
	return entry{ConversationID: id}
}

// object is a JSON object whose values we need not know.
type object map[string]json.RawMessage

// set replaces a value. It takes strings, numbers and objects, which never fail.
func (o object) set(key string, value any) {
	data, err := marshal(value, "")
	if err == nil {
		o[key] = data
	}
}

// text returns a string, empty if there is none.
func (o object) text(key string) string {
	var s string
	_ = json.Unmarshal(o[key], &s) // another type is as good as none
	return s
}

// index returns lastProcessedIndex. JavaScript may have written it with a
// fraction or an exponent.
func (o object) index() (int64, bool) {
	var f *float64
	if json.Unmarshal(o["lastProcessedIndex"], &f) != nil || f == nil || *f < -1 || *f > 1<<53 {
		return 0, false
	}
	return int64(*f), true
}

// errNothing is returned by a change that has nothing to change.
var errNothing = errors.New("nothing to write")

// update reads a file, changes it, and replaces it if it is different then. One
// that cannot be parsed starts over.
func update(root *os.Root, name string, change func(object) error) error {
	o, data, err := load(root, name)
	broken := errors.Is(err, ErrBroken)
	switch {
	case errors.Is(err, fs.ErrNotExist), broken:
		o = object{}
	case err != nil:
		return fmt.Errorf("read %s: %w", name, err)
	}
	if err := change(o); errors.Is(err, errNothing) {
		return nil
	} else if err != nil {
		return fmt.Errorf("change %s: %w", name, err)
	}
	changed, err := marshal(o, "  ")
	if err != nil {
		return fmt.Errorf("format %s: %w", name, err)
	}
	if bytes.Equal(changed, data) {
		return nil
	}
	full := path.Join(folder, name)
	if broken {
		// A person may want to look at it. It is lost at the next damage.
		if err := root.Rename(full, full+".broken"); err != nil {
			return fmt.Errorf("set broken %s aside: %w", name, err)
		}
	}
	if err := durable.WriteFileIn(root, full, changed); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// load reads a file. It returns ErrBroken for what is not one JSON object, is
// too large, or is no file.
func load(root *os.Root, name string) (object, []byte, error) {
	full := path.Join(folder, name)
	info, err := root.Lstat(full)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() { // a link is not followed, a pipe not waited for
		return nil, nil, fmt.Errorf("not a regular file: %w", ErrBroken)
	}
	data, err := durable.ReadFileIn(root, full, maxFile)
	if errors.Is(err, durable.ErrTooLarge) {
		return nil, nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if err != nil {
		return nil, nil, err
	}
	var o object
	if err := json.Unmarshal(data, &o); err != nil || o == nil {
		return nil, data, ErrBroken // without the error: it may quote the file
	}
	return o, data, nil
}

// marshal formats as the plugin does: two blanks, no final line end, and < and &
// as they are.
func marshal(value any, indent string) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// sessionFile is the name of a session's own file. The plugin makes it of the
// id as it is; a valid id has no dot and no slash.
func sessionFile(sessionID string) string { return "session-" + sessionID + ".json" }
