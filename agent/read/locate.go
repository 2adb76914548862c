package read

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// ErrMissing is returned when the stream's file is nowhere to be found. That
// is normal before the first prompt and after a person deleted it.
var ErrMissing = errors.New("transcript is missing")

// ErrReplaced is returned where history is read: the file is another one than
// the one that was begun.
var ErrReplaced = errors.New("transcript is another one than before")

// Source names one stream and where to look for it.
type Source struct {
	// Session is the session's id, Stream is Main or agent-<id>.
	Session string
	Stream  string

	// Path is the newest path known, from a note or from a folder listing.
	Path string

	// Cwd and Entrypoint stand in for records before the first that names one.
	Cwd, Entrypoint string

	// Nested says that another session started this one, and not a person: all
	// of it is headless.
	Nested bool

	// ForkedAt is when the session was made as a copy of another; zero means
	// that it was not. What was said before is the other one's.
	ForkedAt time.Time

	// Baseline is the size the file had at init, 0 where it did not exist. Init
	// is when that was: of a file that was there and was replaced since, and of
	// what a fork copied, nothing is heard that says that it is older.
	Baseline int64
	Init     time.Time

	// Kept is what is withheld of the file as it was first found, besides.
	// Earlier returns what was withheld of the stream so far; it is asked when
	// another file took the place of the one that was read.
	Kept    []Kept
	Earlier func() ([]Kept, error)

	// Silences are the times in which nothing may be heard. ForkedFrom is the
	// session that this one is known to be a fork of.
	Silences   []Silence
	ForkedFrom string

	// History is set where what was written before init is brought in
	// afterwards. Baseline and Init say nothing then.
	History *History
}

// History bounds what is brought in of before init.
type History struct {
	// Until bounds the bytes: lines are read that begin before it. A line that
	// goes over init begins before it, and is withheld by all other reading.
	Until int64

	// Before is when init was: reading ends at the first record that says it is
	// not older. What says that it is of a time to come says nothing.
	Before time.Time

	// Dated says that only the time tells what is of before init. Then lines
	// before the first that gives one are withheld.
	Dated bool
}

// ends says whether a line is no more of what is brought in.
func (h *History) ends(line transcript.Line, record transcript.Record, now time.Time) bool {
	at := record.Timestamp
	return h != nil && (line.Offset >= h.Until || !at.IsZero() && !at.Before(h.Before) && !at.After(now))
}

// open returns the file to read on, and the cursor to read it from: the same,
// or the start of the next generation, first seen now.
func open(src Source, cur Cursor, now time.Time) (found, Cursor, error) {
	here, err := candidate(src.Path, cur)
	if err != nil {
		return found{}, cur, err
	}
	if here.fits {
		return here.take(cur)
	}
	for _, path := range elsewhere(src, cur) {
		other, err := candidate(path, cur)
		if err != nil {
			continue // an unreadable neighbour is no reason to stop
		}
		if other.fits {
			here.close()
			return other.take(cur)
		}
		other.close()
	}
	if here.file == nil {
		return found{}, cur, ErrMissing
	}
	// Another file took the place, or the file was cut: what was read stays
	// read, and this is a new one. Its lines are told apart from the old ones
	// by the generation. Ranges that were still to be named went with the file;
	// what was withheld is so in the new one, too.
	kept, err := src.earlier(cur)
	if err != nil {
		here.close()
		return found{}, cur, err
	}
	cur = Cursor{
		Generation: cur.Generation + 1, GenerationAt: now, Kept: kept,
		LastCwd: cur.LastCwd, LastEntrypoint: cur.LastEntrypoint, ForkedFrom: cur.ForkedFrom, Hushed: cur.Hushed, NoSummaries: cur.NoSummaries,
	}
	here.signer = new(transcript.Signer)
	return here.take(cur)
}

// earlier returns what is withheld of a file that takes the place of the one that
// the cursor was in.
func (src *Source) earlier(cur Cursor) ([]Kept, error) {
	kept := cur.Withheld()
	if src.Earlier != nil {
		more, err := src.Earlier()
		if err != nil {
			return nil, err
		}
		kept = append(kept, more...)
	}
	return merge(kept, cur.Generation+1), nil
}

// found is one path that was looked at.
type found struct {
	path string
	file *os.File // nil when there is none
	info fs.FileInfo
	fits bool

	signer *transcript.Signer // of the bytes that cur has read, where it fits
}

// candidate opens path and says whether it holds the bytes that cur has read.
func candidate(path string, cur Cursor) (found, error) {
	file, err := os.Open(path) //nolint:gosec // the path comes from the coding agent's own hook call
	if errors.Is(err, fs.ErrNotExist) {
		return found{path: path}, nil
	}
	if err != nil {
		return found{}, fmt.Errorf("open transcript: %w", withoutPath(err))
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = file.Close() // nothing was written
		if err == nil {
			err = errors.New("not a regular file")
		}
		return found{}, fmt.Errorf("open transcript: %w", withoutPath(err))
	}
	f := found{path: path, file: file, info: info}
	if f.signer, f.fits, err = cur.Signature.Resume(file); err != nil {
		f.close()
		return found{}, fmt.Errorf("read transcript: %w", withoutPath(err))
	}
	return f, nil
}

func (f found) close() {
	if f.file != nil {
		_ = f.file.Close() // nothing was written
	}
}

// take moves the cursor to this file and the file to the cursor.
func (f found) take(cur Cursor) (found, Cursor, error) {
	if _, err := f.file.Seek(cur.Offset, io.SeekStart); err != nil {
		f.close()
		return found{}, cur, fmt.Errorf("read transcript: %w", withoutPath(err))
	}
	cur.Path = f.path
	cur.Dev, cur.Inode = identity(f.info)
	return f, cur, nil
}

// elsewhere lists the paths at which the file may lie after it was moved: the
// cursor's own, and the same name in the neighbouring project folders, which is
// where the coding agent puts a session that enters a worktree.
func elsewhere(src Source, cur Cursor) []string {
	var paths []string
	if cur.Path != "" && cur.Path != src.Path {
		paths = append(paths, cur.Path)
	}
	project, below := split(src)
	folders, err := os.ReadDir(filepath.Dir(project))
	if err != nil {
		return paths
	}
	for _, folder := range folders {
		path := filepath.Join(filepath.Dir(project), folder.Name(), below)
		if folder.IsDir() && path != src.Path && path != cur.Path {
			paths = append(paths, path)
		}
	}
	return paths
}

// Changed says, without reading, whether the stream's file is another than the
// cursor saw, or has bytes after it. A torn tail counts: reading it is cheap.
func Changed(path string, cur Cursor) bool {
	info, err := os.Stat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) || cur.Path != path
	}
	dev, inode := identity(info)
	return info.Size() != cur.Offset || path != cur.Path || dev != cur.Dev || inode != cur.Inode
}

// Fits says whether the file at a path begins with the bytes that the cursor has
// read.
func Fits(path string, cur Cursor) bool {
	f, err := candidate(path, cur)
	if err != nil {
		return false
	}
	f.close()
	return f.fits
}

// split cuts the path of a stream's file into its project folder and the part
// below: the file itself, or <session>/subagents/… for a subagent's.
func split(src Source) (project, below string) {
	if src.Stream != Main {
		for dir := filepath.Dir(src.Path); filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
			if parent := filepath.Dir(dir); filepath.Base(dir) == subagents && filepath.Base(parent) == src.Session {
				project = filepath.Dir(parent)
				below, _ = filepath.Rel(project, src.Path) // it lies below
				return project, below
			}
		}
	}
	return filepath.Dir(src.Path), filepath.Base(src.Path)
}

// subagents is the folder of a session's subagents, in its own folder.
const subagents = "subagents"

// oldAgent is the name of a subagent's file beside the session's, as releases
// 2.0.x wrote it.
var oldAgent = regexp.MustCompile(`^` + segment.AgentPrefix + `[0-9a-f]{7,8}\.jsonl$`)

// headOfAgent bounds what is read to learn whose a file beside the session's is.
const headOfAgent = 64 << 10

// Agents lists the subagent files of the session whose main file is given, as
// stream name to path. They lie
//
//	<session>/subagents/                 nested agents, too
//	<session>/subagents/workflows/*/     agents of a workflow
//	beside the main file                 releases 2.0.x; the first record that names
//	                                     a session decides whose
//
// A name that is in several places is that of the first. An inline agent of
// older releases has no file: its records are lines of the main stream.
func Agents(mainPath, session string) map[string]string {
	streams := make(map[string]string)
	list := func(dir string, ours func(path string) bool) {
		files, err := os.ReadDir(dir)
		if err != nil {
			return // there is no such folder until a subagent ran
		}
		for _, file := range files {
			stream, ok := AgentStream(file.Name())
			path := filepath.Join(dir, file.Name())
			if _, known := streams[stream]; ok && !known && file.Type().IsRegular() && ours(path) {
				streams[stream] = path
			}
		}
	}
	every := func(string) bool { return true }
	dir := filepath.Join(filepath.Dir(mainPath), session, subagents)
	list(dir, every)
	if flows, err := os.ReadDir(filepath.Join(dir, "workflows")); err == nil { // few sessions have any
		for _, flow := range flows {
			list(filepath.Join(dir, "workflows", flow.Name()), every)
		}
	}
	var head []byte // one for all: such a folder may hold hundreds
	list(filepath.Dir(mainPath), func(path string) bool {
		if !oldAgent.MatchString(filepath.Base(path)) {
			return false
		}
		if head == nil {
			head = make([]byte, headOfAgent)
		}
		return sessionOf(path, head) == session
	})
	return streams
}

// sessionOf returns the session that the first record with one names, "" if none
// does in as much of the file as head holds.
func sessionOf(path string, head []byte) string {
	file, err := os.Open(path) //nolint:gosec // it lies beside the transcript that the coding agent named
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // nothing was written
	n, _ := io.ReadFull(file, head)     // what can be read is looked at
	for line := range bytes.Lines(head[:n]) {
		whole, ended := bytes.CutSuffix(line, []byte("\n"))
		if record, err := transcript.Parse(whole); ended && err == nil && record.SessionID != "" {
			return record.SessionID
		}
	}
	return ""
}

// AgentStream returns the name of the stream that a subagent's file holds.
func AgentStream(path string) (string, bool) {
	name := filepath.Base(path)
	if filepath.Ext(name) != ".jsonl" {
		return "", false
	}
	name = name[:len(name)-len(".jsonl")]
	return name, agentStream.MatchString(name)
}

// withoutPath keeps the cause and drops the path, which may name a project.
func withoutPath(err error) error {
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		return perr.Err
	}
	return err
}
