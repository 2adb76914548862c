package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
)

const (
	owner       = "ada"
	workstation = "ws-0123456789abcdef"
	id          = "0a1b2c3d-0000-4000-8000-000000000001"
)

var (
	at      = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	project = &read.Project{Name: "tide", Remote: "git.example.com/ada/tide"}
)

func open(t *testing.T, dir string, fs durable.FS) *Spool {
	t.Helper()
	s, err := Open(Options{Dir: dir, Owner: owner, Workstation: workstation, FS: fs})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// batch is the n-th batch of a stream: one line, ten bytes of the file.
func batch(n int64) read.Batch {
	return read.Batch{
		Header: segment.Header{
			Stream: read.Main, FirstIndex: n, LastIndex: n, Offset: 10 * n, EndOffset: 10*n + 10,
			Offsets: []int64{10 * n}, Indexes: []int64{n}, Rules: redact.RulesVersion, At: at,
		},
		Lines:   []redact.Redacted{redact.Literal(`{"type":"user","n":`).Append(digit(n), redact.Literal(`}`))},
		Cursor:  read.Cursor{Path: "/p/s.jsonl", Offset: 10*n + 10, NextIndex: n + 1},
		Moved:   true,
		Project: project,
	}
}

func digit(n int64) redact.Redacted {
	return []redact.Redacted{
		redact.Literal("0"), redact.Literal("1"), redact.Literal("2"), redact.Literal("3"), redact.Literal("4"),
	}[n%5]
}

// next is the number of the batch that a reader at this cursor would read.
func next(s *Session) int64 { return s.State().Cursors[read.Main].Offset / 10 }

// files returns the content of every file of the spool but for temporary ones.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || durable.IsTemp(entry.Name()) {
			return err
		}
		data, err := os.ReadFile(path)
		if entry.Name() == receiptsFile { // one that is repeated says nothing new
			lines := slices.Compact(slices.Sorted(strings.Lines(string(data))))
			data = []byte(strings.Join(lines, ""))
		}
		all[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatalf("list files: %v", err)
	}
	return all
}

func TestAppendChainsWhatItKeeps(t *testing.T) {
	s := open(t, t.TempDir(), durable.FS{})
	session, err := s.Ensure(strings.ToUpper(id), at)
	if err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	chain := segment.Start(session.Name(), workstation)
	for n := range int64(3) {
		if err := session.Append(read.Main, batch(n)); err != nil {
			t.Fatalf("Append(%d): %v", n, err)
		}
		packed, err := session.Read(n + 1)
		if err != nil {
			t.Fatalf("Read(%d): %v", n+1, err)
		}
		raw, err := segment.Unpack(packed)
		if err != nil {
			t.Fatalf("Unpack: %v", err)
		}
		header, lines, err := segment.Decode(raw)
		if err != nil {
			t.Fatalf("Decode: %v", err)
		}
		if header.PreviousChain != chain.String() || header.Seq != n+1 || header.Session != session.Name() || len(lines) != 1 {
			t.Errorf("segment %d: header %+v with %d lines", n+1, header, len(lines))
		}
		chain = chain.Next(raw)
	}
	state := session.State()
	if state.Head.Chain != chain.String() || state.Head.Lines != 3 || state.Head.Segments != 3 {
		t.Errorf("head %+v, want 3 segments, 3 lines, chain %s", state.Head, chain)
	}
	if diff := cmp.Diff(project, state.Project); diff != "" {
		t.Errorf("project (-want +got):\n%s", diff)
	}
}

func TestABatchWithoutLinesOnlyMovesTheCursor(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, durable.FS{})
	session, err := s.Ensure(id, at)
	if err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	moved := read.Batch{Cursor: read.Cursor{Offset: 70, NextIndex: 7}, Moved: true, ForkedFrom: "0A1b2c3d-0000-4000-8000-000000000009"}
	if err := session.Append(read.Main, moved); err != nil {
		t.Fatalf("Append: %v", err)
	}
	state := open(t, dir, durable.FS{}).sessions[id].State()
	if state.Head.Segments != 0 || state.Project != nil || state.Cursors[read.Main].Offset != 70 {
		t.Errorf("state %+v", state)
	}
	if state.ForkedFrom != "0a1b2c3d-0000-4000-8000-000000000009" {
		t.Errorf("forked from %q: withheld copies have told it, and no later line does", state.ForkedFrom)
	}
}

// work is what the stages do to one session, as far as it has not been done:
// three segments, two uploaded, one verified. It returns the first error.
func work(s *Spool) error {
	session, err := s.Ensure(id, at)
	if err != nil {
		return err
	}
	for next(session) < 3 {
		if err := session.Append(read.Main, batch(next(session))); err != nil {
			return err
		}
	}
	for seq := int64(1); seq <= 2; seq++ {
		err := session.Update(func(state *State) {
			if g := state.Segment(seq); g != nil {
				g.Slot, g.SlotState = seq, SlotUploaded
			}
		})
		if err != nil {
			return err
		}
	}
	if session.State().Verified.Segments < 1 {
		return session.Drop(1)
	}
	return nil
}

var errStopped = errors.New("stopped")

// operations counts what work does to the disk.
func operations(t *testing.T) (int, map[string]string) {
	t.Helper()
	dir, n := t.TempDir(), 0
	s := open(t, dir, durable.FS{Before: func(durable.Op, string) error { n++; return nil }})
	if err := work(s); err != nil {
		t.Fatalf("work: %v", err)
	}
	return n, files(t, dir)
}

// TestSpoolSurvivesAStopAfterEveryFileOperation stops the process, as kill -9
// does, after each operation in turn, opens what is on the disk, and finishes.
func TestSpoolSurvivesAStopAfterEveryFileOperation(t *testing.T) {
	t.Parallel()
	total, want := operations(t)
	if total < 30 {
		t.Fatalf("only %d operations: the test sees too few of them", total)
	}
	for stop := range total {
		dir, n := t.TempDir(), 0
		before := func(durable.Op, string) error {
			if n++; n > stop {
				return errStopped
			}
			return nil
		}
		s, err := Open(Options{Dir: dir, Owner: owner, Workstation: workstation, FS: durable.FS{Before: before}})
		if err == nil {
			err = work(s)
		}
		if !errors.Is(err, errStopped) {
			t.Fatalf("stop after %d: got %v", stop, err)
		}
		if err := work(open(t, dir, durable.FS{})); err != nil {
			t.Fatalf("stop after %d, then: %v", stop, err)
		}
		again := open(t, dir, durable.FS{}) // the last Drop may have left a file
		if diff := cmp.Diff(want, files(t, dir)); diff != "" {
			t.Errorf("stop after %d (-want +got):\n%s", stop, diff)
		}
		if again.Bytes() == 0 || len(again.Damaged()) > 0 {
			t.Errorf("stop after %d: %d bytes, damaged %v", stop, again.Bytes(), again.Damaged())
		}
	}
}

// TestSpoolSurvivesEveryFailedFileOperation lets each operation in turn fail
// once, as a full disk does, and the same process goes on.
func TestSpoolSurvivesEveryFailedFileOperation(t *testing.T) {
	t.Parallel()
	total, want := operations(t)
	for fail := 1; fail <= total; fail++ {
		dir, n := t.TempDir(), 0
		before := func(durable.Op, string) error {
			if n++; n == fail {
				return errStopped
			}
			return nil
		}
		o := Options{Dir: dir, Owner: owner, Workstation: workstation, FS: durable.FS{Before: before}}
		s, err := Open(o)
		if err != nil {
			if s, err = Open(o); err != nil {
				t.Fatalf("fail %d: open again: %v", fail, err)
			}
		}
		for range 3 {
			if err = work(s); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("fail %d, and again: %v", fail, err)
		}
		open(t, dir, durable.FS{}) // removes what a failed removal left
		if diff := cmp.Diff(want, files(t, dir)); diff != "" {
			t.Errorf("fail %d (-want +got):\n%s", fail, diff)
		}
	}
}

func TestAppendStopsWhereThereIsNoRoom(t *testing.T) {
	type test struct {
		reason string
		limit  int64
		most   int64
		want   error
	}
	for name, tt := range map[string]test{
		"behind": {reason: "no more segments may wait than slots can be named", most: MaxSegments, want: ErrBehind},
		"full":   {reason: "the spool is bounded", limit: 1, most: 1, want: ErrFull},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(Options{Dir: t.TempDir(), Owner: owner, Workstation: workstation, Limit: tt.limit})
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			session, err := s.Ensure(id, at)
			if err != nil {
				t.Fatalf("Ensure: %v", err)
			}
			for n := range tt.most {
				if err := session.Append(read.Main, batch(n)); err != nil {
					t.Fatalf("Append(%d): %v", n, err)
				}
			}
			before := session.State()
			err = session.Append(read.Main, batch(tt.most))
			if diff := cmp.Diff(tt.want, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
			if diff := cmp.Diff(before, session.State()); diff != "" {
				t.Errorf("the state moved (-want +got):\n%s", diff)
			}
			if err := session.Drop(1); err != nil {
				t.Fatalf("Drop: %v", err)
			}
			if err := session.Room(); err != nil {
				t.Errorf("after a segment is verified: %v", err)
			}
		})
	}
}

func TestEnsureRefusesIdsThatNoSessionCanHave(t *testing.T) {
	s := open(t, t.TempDir(), durable.FS{})
	for _, bad := range []string{"", "-a", "a-", "a/b", "..", "a_b", strings.Repeat("a", 55)} {
		if _, err := s.Ensure(bad, at); !errors.Is(err, ErrSessionID) {
			t.Errorf("Ensure(%q): %v", bad, err)
		}
	}
	for _, good := range []string{"a", "con", strings.Repeat("a", 54)} {
		if _, err := s.Ensure(good, at); err != nil {
			t.Errorf("Ensure(%q): %v", good, err)
		}
	}
}

func TestADamagedStateIsLeftAlone(t *testing.T) {
	type test struct {
		reason string
		damage func(string) string
	}
	for name, tt := range map[string]test{
		"not JSON":       {"half a file", func(s string) string { return s[:len(s)/2] }},
		"newer version":  {"a later undersong wrote it", func(s string) string { return strings.Replace(s, `"version": 1`, `"version": 2`, 1) }},
		"other session":  {"the folder was copied", func(s string) string { return strings.Replace(s, id, "f"+id[1:], 1) }},
		"segment is out": {"the head is not what the segments give", func(s string) string { return strings.Replace(s, `"segments": 1`, `"segments": 5`, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			session, err := open(t, dir, durable.FS{}).Ensure(id, at)
			if err != nil {
				t.Fatalf("Ensure: %v", err)
			}
			if err := session.Append(read.Main, batch(0)); err != nil {
				t.Fatalf("Append: %v", err)
			}
			path := filepath.Join(dir, id, stateFile)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("read state: %v", err)
			}
			if err := os.WriteFile(path, []byte(tt.damage(string(data))), 0o600); err != nil {
				t.Fatalf("damage state: %v", err)
			}
			before := files(t, dir)
			s := open(t, dir, durable.FS{})
			if diff := cmp.Diff([]string{id}, s.Damaged()); diff != "" {
				t.Errorf("%s: damaged (-want +got):\n%s", tt.reason, diff)
			}
			if _, err := s.Ensure(id, at); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: Ensure: %v", tt.reason, err)
			}
			if diff := cmp.Diff(before, files(t, dir)); diff != "" {
				t.Errorf("%s: files changed (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestReadyStopsAtTheFirstSegmentThatIsNotThere(t *testing.T) {
	state := State{Verified: Mark{Segments: 2, Lines: 20, Bytes: 200, Chain: "c2"}}
	for i, slot := range []SlotState{SlotUploaded, SlotGone, SlotTaken, SlotUploaded} {
		seq := int64(3 + i)
		state.Segments = append(state.Segments, Segment{Seq: seq, Lines: 1, Bytes: 10, Chain: fmt.Sprint("c", seq), SlotState: slot})
	}
	want := Mark{Segments: 4, Lines: 22, Bytes: 220, Chain: "c4"}
	if diff := cmp.Diff(want, state.Ready()); diff != "" {
		t.Errorf("Ready (-want +got):\n%s", diff)
	}
}

func TestWithdrawDropsWhatWaits(t *testing.T) {
	dir := t.TempDir()
	session, err := open(t, dir, durable.FS{}).Ensure(id, at)
	if err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	if err := session.Append(read.Main, batch(0)); err != nil {
		t.Fatalf("Append: %v", err)
	}
	if err := session.Withdraw(); err != nil {
		t.Fatalf("Withdraw: %v", err)
	}
	again := open(t, dir, durable.FS{})
	state := again.sessions[id].State()
	if !state.Withdrawn || len(state.Segments) != 0 || again.Bytes() != 0 {
		t.Errorf("state %+v, %d bytes", state, again.Bytes())
	}
}

func TestForgetOnlyWhatWasNeverRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, durable.FS{})
	session, err := s.Ensure(id, at)
	if err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	if err := session.Append(read.Main, batch(0)); err != nil {
		t.Fatalf("Append: %v", err)
	}
	if err := s.Forget(id); err == nil {
		t.Error("a session with segments was forgotten")
	}
	if _, err := s.Ensure("other", at); err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	if err := s.Forget("other"); err != nil {
		t.Errorf("Forget: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); err == nil {
		t.Error("the folder is still there")
	}
}

// consistent checks that the files are the segments that the state names.
func consistent(t *testing.T, session *Session) {
	t.Helper()
	state := session.State()
	chain, err := segment.ParseSum(state.Verified.Chain)
	if err != nil {
		t.Fatalf("ParseSum: %v", err)
	}
	for _, g := range state.Segments {
		packed, err := session.Read(g.Seq)
		if err != nil {
			t.Fatalf("Read(%d): %v", g.Seq, err)
		}
		raw, err := segment.Unpack(packed)
		if err != nil {
			t.Fatalf("Unpack: %v", err)
		}
		if chain = chain.Next(raw); chain.String() != g.Chain {
			t.Errorf("segment %d is not the one that the state names", g.Seq)
		}
	}
}

// TestAStateThatIsReplacedButNotSyncedCounts: the rename worked, the sync of
// the directory did not, and the file has grown since. If memory did not follow
// the disk, the next segment would take the place of the one that the state on
// the disk names; a kill right after it shows.
func TestAStateThatIsReplacedButNotSyncedCounts(t *testing.T) {
	dir := t.TempDir()
	var stop func(op durable.Op, file string) bool
	renamed := ""
	s := open(t, dir, durable.FS{Before: func(op durable.Op, name string) error {
		if op == durable.OpRename {
			renamed = filepath.Base(name)
		}
		if stop != nil && stop(op, renamed) {
			return errStopped
		}
		return nil
	}})
	session, err := s.Ensure(id, at)
	if err != nil {
		t.Fatalf("Ensure: %v", err)
	}
	stop = func(op durable.Op, file string) bool { return op == durable.OpSyncDir && file == stateFile }
	if err := session.Append(read.Main, batch(0)); !errors.Is(err, errStopped) {
		t.Fatalf("Append: %v", err)
	}

	grown := batch(next(session))
	grown.Lines[0] = grown.Lines[0].Append(redact.Literal(" "))
	stop = func(op durable.Op, file string) bool {
		return op == durable.OpSyncDir && file != stateFile || op == durable.OpCreate && file != stateFile
	}
	if err := session.Append(read.Main, grown); !errors.Is(err, errStopped) {
		t.Fatalf("Append: %v", err)
	}
	again, _ := open(t, dir, durable.FS{}).Session(id)
	consistent(t, again)
	if got := again.State().Head.Segments; got != 1 {
		t.Errorf("%d segments, want 1", got)
	}
}

// TestExpireKeepsWhatWaits: that a Session's time is over takes nothing away
// that was not sent.
func TestExpireKeepsWhatWaits(t *testing.T) {
	dir := t.TempDir()
	session, err := fourSegments(t, dir, durable.FS{})
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Update(func(state *State) { state.UID = "uid" }); err != nil {
		t.Fatal(err)
	}
	if err := session.Expire(); err != nil {
		t.Fatal(err)
	}
	state := open(t, dir, durable.FS{}).sessions[id].State()
	if state.UID != "" || !state.Expired || state.Withdrawn || len(state.Segments) != 4 || state.Applied != nil {
		t.Errorf("state %+v", state)
	}
	if err := session.Drop(4); err != nil {
		t.Fatal(err)
	}
	if err := session.Update(func(state *State) { state.Applied = &v1alpha1.Writer{Segments: 4} }); err != nil {
		t.Fatal(err)
	}
	if err := session.Expire(); err != nil {
		t.Fatal(err)
	}
	if state := session.State(); state.Applied == nil {
		t.Error("a Session would be made again with nothing new to say")
	}
}

// TestADiskThatFailsIsNoDamage: what may be well in a moment makes Open fail, so that
// it is tried again, and is never taken for a session without a state.
func TestADiskThatFailsIsNoDamage(t *testing.T) {
	dir := t.TempDir()
	session, err := open(t, dir, durable.FS{}).Ensure(id, at)
	if err == nil {
		err = session.Append(read.Main, batch(0))
	}
	if err == nil {
		err = session.Update(func(s *State) { s.Erasing = map[int64][]int{1: {0}} })
	}
	if err != nil {
		t.Fatal(err)
	}
	state, seg := filepath.Join(dir, id, stateFile), filepath.Join(dir, id, segmentFile(1))
	for _, path := range []string{state, seg} { // a folder cannot be read as a file
		if err := errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Options{Dir: dir, Owner: owner, Workstation: workstation})
		if err == nil {
			t.Errorf("%s cannot be read: opened, damaged %v", filepath.Base(path), s.Damaged())
		}
		if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(seg); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	s := open(t, dir, durable.FS{})
	if diff := cmp.Diff([]string{id}, s.Damaged()); diff != "" {
		t.Errorf("a segment to erase lines of is lost: damaged (-want +got):\n%s", diff)
	}
	if _, err := s.Ensure(id, at); !errors.Is(err, ErrDamaged) {
		t.Errorf("Ensure: %v, want %v", err, ErrDamaged)
	}
	if diff := cmp.Diff(before, files(t, dir)); diff != "" {
		t.Errorf("files changed (-want +got):\n%s", diff)
	}
}

// TestABatchOfAnEarlierReading is not put behind a cursor that began anew meanwhile.
func TestABatchOfAnEarlierReading(t *testing.T) {
	session, err := open(t, t.TempDir(), durable.FS{}).Ensure(id, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Append(read.Main, batch(0)); err != nil {
		t.Fatal(err)
	}
	next := batch(1)
	began := session.State().Cursors[read.Main]
	next.Began = &began
	if err := session.Update(func(state *State) { state.Cursors[read.Main] = read.Cursor{} }); err != nil {
		t.Fatal(err)
	}
	before := session.State()
	if err := session.Append(read.Main, next); !errors.Is(err, ErrMoved) {
		t.Errorf("Append: %v, want ErrMoved", err)
	}
	if err := session.AppendImport(read.Main, next); !errors.Is(err, ErrMoved) {
		t.Errorf("AppendImport: %v, want ErrMoved", err)
	}
	if diff := cmp.Diff(before, session.State()); diff != "" {
		t.Errorf("it changed the session:\n%s", diff)
	}
	began = read.Cursor{}
	if err := session.Append(read.Main, next); err != nil {
		t.Errorf("from where the stream is: %v", err)
	}
}
