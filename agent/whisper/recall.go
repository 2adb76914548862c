package whisper

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/object"
	"github.com/undersong-dev/undersong/agent/note"
)

const (
	// MaxBrief bounds what is shown of the block brief, in UTF-16 units.
	MaxBrief = 1500

	// Below recallDir lie, under hashes of their names, the folders that the
	// agent works in, and the memories of projects: whole, and the brief alone,
	// which is all that most hooks need to read.
	recallDir   = "recall"
	placeDir    = "places"
	memoryDir   = "memories"
	briefDir    = "briefs"
	maxRecall   = 8 << 20
	keepRecall  = 90 * 24 * time.Hour
	maxBlocks   = 64
	startsDir   = "starts"
	digestChars = 8
)

// Place says whose memory is shown in a folder. The daemon finds it out: the
// hook asks no repository.
type Place struct {
	Version int    `json:"version"`
	Cwd     string `json:"cwd"`

	// Project is the key of the memory.
	Project string `json:"project"`

	// Recall narrows what is shown there, as the repository wishes.
	Recall note.Recall `json:"recall,omitempty"`
}

// Memory is what is known of a project's memory.
type Memory struct {
	Version int `json:"version"`

	// Project is the remote of the project, Name that of the memory.
	Project string  `json:"project"`
	Name    string  `json:"name"`
	Blocks  []Block `json:"blocks"`
}

// Block is one block of a memory.
type Block struct {
	Label  string `json:"label"`
	Value  string `json:"value"`
	Digest string `json:"digest"`

	// Trust is TrustLearned or TrustPinned.
	Trust     string    `json:"trust"`
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
}

// PutPlace records a folder. What is recorded already is not written again.
func PutPlace(home string, p Place) error {
	p.Version = Version
	return putRecall(recallPath(home, placeDir, p.Cwd), p)
}

// FindPlace returns what is recorded of a folder.
func FindPlace(home, cwd string) (Place, bool) {
	data, err := durable.ReadFile(recallPath(home, placeDir, cwd), maxRecall)
	if err != nil {
		return Place{}, false
	}
	o, err := object.Parse(data)
	if err != nil {
		return Place{}, false
	}
	p := Place{Version: int(o.Int("version")), Cwd: o.String("cwd"), Project: o.String("project"), Recall: note.Recall(o.String("recall"))}
	return p, o.Err() == nil && p.Version == Version && p.Cwd == cwd
}

// PutMemory records what is known of a project's memory.
func PutMemory(home string, m Memory) error {
	m.Version = Version
	m.Blocks = m.Blocks[:min(len(m.Blocks), maxBlocks)]
	if err := putRecall(recallPath(home, memoryDir, m.Project), m); err != nil {
		return err
	}
	brief := m
	brief.Blocks = nil
	for _, b := range m.Blocks {
		if b.Label == note.BriefLabel {
			brief.Blocks = append(brief.Blocks, b)
		}
	}
	return putRecall(recallPath(home, briefDir, m.Project), brief)
}

// LoadMemory returns what is known of a project's memory, or of its brief alone.
func LoadMemory(home, project string, briefOnly bool) (Memory, bool) {
	dir := memoryDir
	if briefOnly {
		dir = briefDir
	}
	m, ok := getRecall[Memory](recallPath(home, dir, project))
	return m, ok && m.Version == Version && m.Project == project
}

// ForgetMemories forgets every memory and folder: the workstation has joined
// another team, or the memory is gone.
func ForgetMemories(home string) error {
	if err := os.RemoveAll(filepath.Join(home, recallDir)); err != nil {
		return fmt.Errorf("forget memories: %w", err)
	}
	return nil
}

func putRecall(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("format memory: %w", err)
	}
	if known, err := durable.ReadFile(path, maxRecall); err == nil && string(known) == string(data) {
		return nil
	}
	if err := durable.MkdirAll(filepath.Dir(path)); err != nil {
		return fmt.Errorf("keep memory: %w", err)
	}
	if err := durable.WriteFile(path, data); err != nil {
		return fmt.Errorf("keep memory: %w", err)
	}
	return nil
}

func getRecall[T any](path string) (v T, ok bool) {
	data, err := durable.ReadFile(path, maxRecall)
	if err != nil || json.Unmarshal(data, &v) != nil {
		return v, false
	}
	return v, true
}

// recallPath names a file by a hash: a path or a remote may be longer than a
// file name. What is in it says whose it is.
func recallPath(home, dir, key string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	return filepath.Join(home, recallDir, dir, strconv.FormatUint(h.Sum64(), 16)+suffix)
}

// Started says that a session has a fresh context, in which nothing of the
// memory stands: Begin will show it. It does not sync.
func Started(home, session string, now time.Time) error {
	path, err := startPath(home, session)
	if err != nil {
		return fmt.Errorf("note start: %w", err)
	}
	data := []byte(strconv.FormatInt(now.UnixNano(), 36))
	err = note.WriteFile(home, path, data)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = note.WriteFile(home, path, data)
		}
	}
	if err != nil {
		return fmt.Errorf("note start: %w", err)
	}
	return nil
}

func startPath(home, session string) (string, error) {
	name, err := durable.SafeName(session)
	if err != nil {
		return "", err
	}
	return filepath.Join(home, startsDir, name), nil
}

// Begin lets the blocks that a mode shows wait for a session whose context is
// fresh, when the folder's memory is known here; if it is not yet, a later call
// does. Of several hooks at once each finds the same whispers, so that Claim
// gives them to one. It does not sync.
func Begin(home, session, cwd string, mode note.Recall) error {
	if note.Narrow(mode, note.RecallBrief) != note.RecallBrief {
		return nil
	}
	start, err := startPath(home, session)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	stamp, err := durable.ReadFile(start, 64)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	place, ok := FindPlace(home, cwd)
	mode = note.Narrow(mode, place.Recall)
	if !ok || mode == note.RecallOff || mode == note.RecallWhisper {
		return nil
	}
	memory, ok := LoadMemory(home, place.Project, mode == note.RecallBrief)
	if !ok {
		return nil
	}
	for _, b := range memory.Blocks {
		if !mode.Shows(b.Label) || strings.TrimSpace(b.Value) == "" {
			continue
		}
		if err := stage(home, b.whisper(session, memory, string(stamp))); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
	}
	// After it, so that a kill in between loses nothing.
	_ = os.Remove(start) // another hook may have
	return nil
}

// whisper shows the block as it is. The stamp tells one start of a session from
// the next.
func (b Block) whisper(session string, m Memory, stamp string) Whisper {
	w := b.of(session, m, stamp)
	w.Text, w.Notice = b.Value, "undersong: the agent was given the team's memory of this project"
	if b.Label == note.BriefLabel {
		w.Text = cutTo(w.Text, MaxBrief)
		w.Notice = "undersong: the agent was given the team's brief of this project"
	}
	return w
}

// Change is a whisper that says what became of a block that the agent knows
// with another value.
func (b Block) Change(session string, m Memory, known string) Whisper {
	w := b.of(session, m, "c")
	w.Text, w.Notice = diff(known, b.Value), "undersong: the agent was told what changed in the team's memory"
	return w
}

func (b Block) of(session string, m Memory, stamp string) Whisper {
	id := "block-" + b.Label + "-" + b.Digest[:min(len(b.Digest), digestChars)] + "-" + stamp
	return Whisper{
		ID: id, Session: session, Project: m.Project, Memory: m.Name, Label: b.Label, Trust: b.Trust, Value: b.Value, At: b.UpdatedAt,
	}
}

// cutTo cuts a text to so many UTF-16 units.
func cutTo(s string, limit int) string {
	if units(s) <= limit {
		return s
	}
	left := limit - units(cut)
	for i, r := range s {
		if left -= units(string(r)); left < 0 {
			return s[:i] + cut
		}
	}
	return s
}

// diff says what changed from one text to another: lines that went and lines
// that came. Where only their order or blanks changed, it is the whole text.
func diff(before, after string) string {
	old, now := lineSet(before), lineSet(after)
	var b strings.Builder
	write := func(sign, text string, other map[string]bool) {
		seen := map[string]bool{}
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(line); line != "" && !other[line] && !seen[line] {
				seen[line] = true
				b.WriteString(sign + line + "\n")
			}
		}
	}
	write("- ", before, now)
	write("+ ", after, old)
	switch {
	case b.Len() > 0:
		return b.String()
	case strings.TrimSpace(after) == "":
		return "(now empty)"
	}
	return after
}

func lineSet(text string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		set[strings.TrimSpace(line)] = true
	}
	return set
}

// stage is Put without sync, for the hook: after a power loss the session's
// context is gone, too.
func stage(home string, w Whisper) error {
	mkdir := func(dir string) error { return os.MkdirAll(dir, 0o700) }
	return store(home, w, mkdir, func(name string, data []byte) error { return note.WriteFile(home, name, data) })
}
