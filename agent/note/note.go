package note

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/object"
)

const (
	notesDir = "notes"
	badDir   = "bad"  // in notesDir
	sameDir  = "same" // in notesDir, see Write

	// suffix ends the name of a note.
	suffix = ".json"

	// maxNote bounds one note, in bytes. Paths are what makes one long.
	maxNote = 64 << 10

	// maxList bounds what List reads in one call.
	maxList = 1000

	// maxSame bounds how many notes of one content wait. Where no daemon can
	// start, more would only fill the disk: they say what these say.
	maxSame = 16

	// keepSame is how long a content is kept to be linked to.
	keepSame = 24 * time.Hour

	// maxBad bounds the notes that are kept for a person to look at.
	maxBad = 100
)

// Note says that a coding agent called the hook.
type Note struct {
	// Version is 1.
	Version int `json:"version"`

	// Event is the hook event, such as UserPromptSubmit.
	Event string `json:"event"`

	// Session is the session's id: 1 to 64 letters, digits and dashes.
	Session string `json:"session"`

	// Transcript is where the agent says that the session's transcript lies.
	// It need not exist, then or ever.
	Transcript string `json:"transcript,omitempty"`

	// Cwd is the folder that the agent worked in.
	Cwd string `json:"cwd,omitempty"`

	// ProjectDir is the folder that the session was started in.
	ProjectDir string `json:"projectDir,omitempty"`

	// Source is why a session started: startup, resume, clear, compact, fork.
	Source string `json:"source,omitempty"`

	// Reason is why a session ended.
	Reason string `json:"reason,omitempty"`

	// AgentID names the subagent that the call comes from or speaks of.
	AgentID string `json:"agentID,omitempty"`

	// AgentTranscript is where a subagent's transcript should lie. It may
	// never exist.
	AgentTranscript string `json:"agentTranscript,omitempty"`

	// Notification says that a prompt was a notice of the agent to itself,
	// and not a person's.
	Notification bool `json:"notification,omitempty"`

	// Entrypoint is how the agent runs: cli is a person's terminal, sdk-cli
	// and other sdk- values are headless.
	Entrypoint string `json:"entrypoint,omitempty"`

	// Nested says that the agent was started by another session, and not by a
	// person.
	Nested bool `json:"nested,omitempty"`

	// LettaMode and LettaHome are the variables LETTA_MODE and LETTA_HOME of
	// the session. The first narrows what is shown, the second moves the
	// compatible state files.
	LettaMode string `json:"lettaMode,omitempty"`
	LettaHome string `json:"lettaHome,omitempty"`

	// At is when the hook was called. It is in the name of the file.
	At time.Time `json:"-"`
}

// File is a note with the name under which Remove finds it.
type File struct {
	Name string
	Note Note
}

// Write adds a note. It does not sync: a note that is lost with the power is
// made good by the next. The state directory must exist; notes/ is made.
//
// Most notes of a session differ in their time only, and making a file can cost
// as much as starting the process. So the first of its kind stays in
// notes/same/, under its hash, and the next ones are links to it.
func Write(home string, n Note) error {
	data := n.format()
	if len(data) > maxNote {
		return fmt.Errorf("write note: %w", durable.ErrTooLarge)
	}
	dir := filepath.Join(home, notesDir)
	name := filepath.Join(dir, fileName(n.At))
	same := filepath.Join(dir, sameDir, hash(data))
	if stored, err := durable.ReadFile(same, maxNote); err == nil && bytes.Equal(stored, data) {
		info, err := os.Stat(same)
		if err == nil && durable.Links(info) > maxSame || os.Link(same, name) == nil {
			return nil
		}
	}
	err := WriteFile(home, name, data)
	if errors.Is(err, fs.ErrNotExist) { // the first note ever
		if err = os.Mkdir(dir, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			err = WriteFile(home, name, data)
		}
	}
	if err != nil {
		return fmt.Errorf("write note: %w", err)
	}
	share(name, same)
	return nil
}

// format returns the content of a note's file.
func (n Note) format() []byte {
	var w object.Writer
	w.Int("version", Version)
	w.String("event", n.Event)
	w.String("session", n.Session)
	w.Some("transcript", n.Transcript)
	w.Some("cwd", n.Cwd)
	w.Some("projectDir", n.ProjectDir)
	w.Some("source", n.Source)
	w.Some("reason", n.Reason)
	w.Some("agentID", n.AgentID)
	w.Some("agentTranscript", n.AgentTranscript)
	w.True("notification", n.Notification)
	w.Some("entrypoint", n.Entrypoint)
	w.True("nested", n.Nested)
	w.Some("lettaMode", n.LettaMode)
	w.Some("lettaHome", n.LettaHome)
	return w.Bytes()
}

// Oldest returns when the oldest note that waits was written; the zero time
// when none waits.
func Oldest(home string) time.Time {
	names, err := list(filepath.Join(home, notesDir))
	if err != nil || len(names) == 0 {
		return time.Time{}
	}
	at, err := timeOf(names[0])
	if err != nil {
		return time.Time{} // of another make; the daemon sets it aside
	}
	return at
}

// share lets the next notes of this content be links to this one. What fails,
// on a file system without links above all, only makes them files of their own.
func share(name, same string) {
	_ = os.Remove(same) // another note with this hash, a damaged one, or one with too many links
	if err := os.Link(name, same); errors.Is(err, fs.ErrNotExist) {
		_ = os.Mkdir(filepath.Dir(same), 0o700)
		_ = os.Link(name, same)
	}
}

// hash names the notes of one content.
func hash(data []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(data) // never fails
	return strconv.FormatUint(h.Sum64(), 16) + suffix
}

// Sweep forgets contents that were first noted more than a day ago, and notes
// that a kill left half written. The daemon calls it now and then.
func Sweep(home string, now time.Time) error {
	errs := []error{sweepOff(home, now)}
	for dir, which := range map[string]func(string) bool{
		filepath.Join(home, notesDir):          durable.IsTemp,
		filepath.Join(home, notesDir, sameDir): func(string) bool { return true },
	} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if !which(e.Name()) || err != nil || now.Sub(info.ModTime()) < keepSame {
				continue // a note, gone, or young
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep notes: %w", err)
	}
	return nil
}

// fileName makes a name that sorts by time and is new: two processes differ in
// their id, one process in the random number.
func fileName(at time.Time) string {
	nanos := strconv.FormatInt(max(at.UnixNano(), 0), 10)
	random := strconv.FormatUint(rand.Uint64(), 16) //nolint:gosec // only has to be new
	return strings.Repeat("0", 20-len(nanos)) + nanos + "-" + strconv.Itoa(os.Getpid()) + "-" + random + suffix
}

// timeOf returns the time in a name.
func timeOf(name string) (time.Time, error) {
	digits, _, _ := strings.Cut(name, "-")
	nanos, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || len(digits) != 20 {
		return time.Time{}, errors.New("not the name of a note")
	}
	return time.Unix(0, nanos).UTC(), nil
}

// List returns the notes that wait, oldest first, at most 1,000 of them: list
// again after these are removed. A note that cannot be read is moved to
// notes/bad/ (see Broken) and is not in the list; it is never an error.
func List(home string) ([]File, error) {
	dir := filepath.Join(home, notesDir)
	names, err := list(dir)
	if err != nil {
		return nil, fmt.Errorf("list notes: %w", err)
	}
	var files []File
	for _, name := range names {
		n, err := read(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since
		case err != nil:
			if err := setAside(dir, name); err != nil {
				return files, fmt.Errorf("set broken note aside: %w", err)
			}
		default:
			files = append(files, File{Name: name, Note: n})
		}
		if len(files) == maxList {
			break
		}
	}
	return files, nil
}

// list returns the names of notes, sorted. An absent directory has none.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); !durable.IsTemp(name) && strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

func read(name string) (Note, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return Note{}, err
	}
	if !info.Mode().IsRegular() { // a pipe would be waited for
		return Note{}, errors.New("not a regular file")
	}
	data, err := durable.ReadFile(name, maxNote)
	if err != nil {
		return Note{}, err
	}
	var n Note
	if err := json.Unmarshal(data, &n); err != nil {
		return Note{}, err
	}
	if n.At, err = timeOf(filepath.Base(name)); err != nil {
		return Note{}, err
	}
	if n.Version < 1 || n.Version > Version || n.Event == "" || !ValidSession(n.Session) {
		return Note{}, errors.New("not a note of this version")
	}
	return n, nil
}

// setAside moves a broken note out of the way. When there are many already,
// one more teaches nothing: it is removed.
func setAside(dir, name string) error {
	bad := filepath.Join(dir, badDir)
	if err := durable.MkdirAll(bad); err != nil {
		return err
	}
	entries, err := os.ReadDir(bad)
	if err != nil {
		return err
	}
	if len(entries) >= maxBad {
		return os.RemoveAll(filepath.Join(dir, name))
	}
	return durable.Rename(filepath.Join(dir, name), filepath.Join(bad, name))
}

// Broken returns the names of the notes that were set aside, at most 100,
// sorted by age.
func Broken(home string) ([]string, error) {
	names, err := list(filepath.Join(home, notesDir, badDir))
	if err != nil {
		return nil, fmt.Errorf("list broken notes: %w", err)
	}
	return names, nil
}

// Remove removes a note that List returned. An absent one is success. It does
// not sync: a note that comes back after a power loss is read twice, which
// changes nothing.
func Remove(home, name string) error {
	if name != filepath.Base(name) || !strings.HasSuffix(name, suffix) {
		return fmt.Errorf("remove note: %w", durable.ErrName)
	}
	if err := os.Remove(filepath.Join(home, notesDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove note: %w", err)
	}
	return nil
}

// Dir returns the folder of the notes, for a watch. It may not exist yet.
func Dir(home string) string { return filepath.Join(home, notesDir) }

// ValidSession reports whether a string can be a session id: 1 to 64 letters,
// digits and dashes. Claude Code uses UUIDs; what else comes on stdin did not
// come from it, and must not become the name of a file.
func ValidSession(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
		if !plain {
			return false
		}
	}
	return true
}
