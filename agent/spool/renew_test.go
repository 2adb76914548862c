package spool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/internal/segment"
)

const later = "ws-fedcba9876543210"

// spent makes a spool of three sessions: one of four segments of which the first
// is verified, one that a person deleted, and one that is damaged.
func spent(t *testing.T, dir string) {
	t.Helper()
	s := open(t, dir, durable.FS{})
	session, err := s.Ensure(id, at)
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	for n := range int64(4) {
		b := batch(n)
		if n < 2 {
			b.Withheld = []read.Withheld{{Range: segment.Range{FromOffset: 10*n + 1, ToOffset: 10*n + 2, Reason: "excluded"}, Since: at, Until: at}}
		}
		must(session.Append(read.Main, b))
	}
	must(session.Drop(1), session.Update(func(state *State) {
		state.UID, state.Transcript, state.Nested, state.Gone = "uid", "/p/s.jsonl", true, []int64{1}
		state.Segments[0].Slot, state.Segments[0].SlotState = 7, SlotUploaded
	}))
	gone, err := s.Ensure("gone", at)
	must(err, gone.Append(read.Main, batch(0)), gone.Withdraw())
	broken, err := s.Ensure("broken", at)
	must(err, broken.Append(read.Main, batch(0)), os.WriteFile(filepath.Join(dir, "broken", stateFile), []byte("{"), 0o600))
}

// TestRenewSurvivesAStopAfterEveryFileOperation: a new Workstation goes on with
// what waits, and whoever is cut in it finds the old spool, or the new one.
func TestRenewSurvivesAStopAfterEveryFileOperation(t *testing.T) {
	const all = `{"type":"user","n":1}` + "\n" + `{"type":"user","n":2}` + "\n" + `{"type":"user","n":3}`
	before := t.TempDir()
	spent(t, before)
	for stop := 0; ; stop++ {
		dir, n := filepath.Join(t.TempDir(), "sessions"), 0
		if err := os.CopyFS(dir, os.DirFS(before)); err != nil {
			t.Fatal(err)
		}
		fs := durable.FS{Before: func(durable.Op, string) error {
			if n++; n > stop {
				return errStopped
			}
			return nil
		}}
		options := Options{Dir: dir, Owner: owner, Workstation: workstation, FS: fs}
		err := Renew(options, later)
		if err != nil && !errors.Is(err, errStopped) {
			t.Fatalf("stop after %d: %v", stop, err)
		}
		cut := err != nil
		s := open(t, dir, durable.FS{})
		if _, err := os.Stat(dir + oldSuffix); err == nil {
			t.Fatalf("stop after %d: the old one is still there", stop)
		}
		session, ok := s.Session(id)
		if !ok {
			t.Fatalf("stop after %d: the session is gone", stop)
		}
		if got := waiting(t, session); got != all {
			t.Fatalf("stop after %d: what waits is\n%s", stop, got)
		}
		if cut && stop%8 > 0 {
			continue
		}
		options.FS = durable.FS{}
		if err := Renew(options, later); err != nil { // as the next init does
			t.Fatalf("stop after %d: again: %v", stop, err)
		}
		renewed(t, open(t, dir, durable.FS{}), all)
		if !cut {
			if stop < 30 {
				t.Errorf("only %d operations: the test sees too few of them", stop)
			}
			return
		}
	}
}

// waiting returns the lines of a session that are not verified.
func waiting(t *testing.T, session *Session) string {
	t.Helper()
	var all []string
	for _, g := range session.State().Segments {
		packed, err := session.Read(g.Seq)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := segment.Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		h, lines, err := segment.Decode(raw)
		if err != nil || h.Seq != g.Seq {
			t.Fatalf("segment %d says that it is %d: %v", g.Seq, h.Seq, err)
		}
		for _, line := range lines {
			all = append(all, string(line))
		}
	}
	return strings.Join(all, "\n")
}

// renewed checks a spool that spent made and Renew changed.
func renewed(t *testing.T, s *Spool, all string) {
	t.Helper()
	session, _ := s.Session(id)
	if got := waiting(t, session); got != all {
		t.Errorf("what waits is\n%s", got)
	}
	state := session.State()
	if state.Verified.Segments != 0 || state.Head.Segments != 3 || state.Head.Lines != 3 || state.Cursors[read.Main].Offset != 40 ||
		state.UID != "uid" || !state.Nested || state.Gone != nil || state.Segments[0].SlotState != SlotNone {
		t.Errorf("state %+v", state)
	}
	if diff := cmp.Diff([]Place{{Stream: read.Main, Offset: 10}}, state.Earlier); diff != "" {
		t.Errorf("the chain begins elsewhere (-want +got):\n%s", diff)
	}
	kept := state.Cursors[read.Main].Kept
	if len(kept) != 2 || kept[0].FromOffset != 1 || kept[1].FromOffset != 11 {
		t.Errorf("withheld is %+v", kept)
	}
	chain := segment.Start(state.Name, later)
	receipts, err := Receipts(s.options.Dir, id)
	if err != nil || len(receipts) != 3 {
		t.Fatalf("%d receipts, %v", len(receipts), err)
	}
	for i, r := range receipts {
		digest, err := segment.ParseSum(r.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if chain = chain.NextDigest(digest); r.Chain != chain.String() || r.Seq != int64(i+1) || r.First != int64(i+1) || r.Offset != int64(10*i+10) {
			t.Errorf("receipt %+v", r)
		}
	}
	if chain.String() != state.Head.Chain {
		t.Error("the chain ends elsewhere")
	}
	if gone, ok := s.Session("gone"); !ok || !gone.State().Withdrawn {
		t.Error("a session that a person deleted is forgotten, and would be sent again")
	}
	if diff := cmp.Diff([]string{"broken"}, s.Damaged()); diff != "" {
		t.Errorf("damaged (-want +got):\n%s", diff)
	}
}

// TestRenewNothing: without a spool there is none afterwards.
func TestRenewNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	if err := Renew(Options{Dir: dir, Owner: owner}, later); err != nil || exists(dir) {
		t.Errorf("Renew: %v, made %v", err, exists(dir))
	}
}

// TestRenewPassesOverADamagedSegment: it must not keep a person from registering
// again, for ever.
func TestRenewPassesOverADamagedSegment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	spent(t, dir)
	if err := os.WriteFile(filepath.Join(dir, id, segmentFile(3)), []byte("no segment"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Renew(Options{Dir: dir, Owner: owner, Workstation: workstation}, later); err != nil {
		t.Fatal(err)
	}
	session, ok := open(t, dir, durable.FS{}).Session(id)
	if !ok || waiting(t, session) != `{"type":"user","n":1}`+"\n"+`{"type":"user","n":3}` {
		t.Errorf("what waits is not the others")
	}
}

// TestSettleBeforeAnybodyLooks: what a crash between the two renames left is there
// for who counts what waits.
func TestSettleBeforeAnybodyLooks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	spent(t, dir)
	if err := os.Rename(dir, dir+oldSuffix); err != nil {
		t.Fatal(err)
	}
	if err := Settle(dir); err != nil || len(States(dir)) == 0 {
		t.Errorf("%d sessions after it was settled: %v", len(States(dir)), err)
	}
}
