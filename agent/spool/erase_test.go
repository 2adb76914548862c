package spool

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// fourSegments is a session of which the first of four segments has left.
func fourSegments(t *testing.T, dir string, fs durable.FS) (*Session, error) {
	t.Helper()
	s, err := Open(Options{Dir: dir, Owner: owner, Workstation: workstation, FS: fs})
	if err != nil {
		return nil, err
	}
	session, err := s.Ensure(id, at)
	if err != nil {
		return nil, err
	}
	for n := next(session); n < 4; n++ {
		b := batch(n)
		b.Times = []time.Time{at.Add(time.Duration(n) * time.Minute)}
		if err := session.Append(read.Main, b); err != nil {
			return nil, err
		}
	}
	return session, session.Update(func(state *State) {
		state.Segments[0].Slot, state.Segments[0].SlotState = 7, SlotUploaded
		state.Applied = &v1alpha1.Writer{Segments: 1, Lines: 1}
	})
}

// bodies returns the lines of the segments, and fails unless they are chained.
func bodies(t *testing.T, session *Session) []string {
	t.Helper()
	state := session.State()
	previous := segment.Start(state.Name, workstation)
	var all []string
	for _, g := range state.Segments {
		packed, err := session.Read(g.Seq)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := segment.Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		h, lines, err := segment.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		if h.PreviousChain != previous.String() || previous.Next(raw).String() != g.Chain || int64(len(raw)) != g.Bytes {
			t.Errorf("segment %d does not follow the one before", g.Seq)
		}
		previous = previous.Next(raw)
		for _, line := range lines {
			all = append(all, string(line))
		}
	}
	if state.Head.Chain != previous.String() {
		t.Error("the head is not that of the segments")
	}
	return all
}

const erased = `{"type":"undersong-stub","of":"forgotten/user","bytes":0}`

// TestEraseTakesOutWhatHasNotLeft: a stub stands for the line, the chain is
// whole, and what has left is not touched.
func TestEraseTakesOutWhatHasNotLeft(t *testing.T) {
	dir := t.TempDir()
	session, err := fourSegments(t, dir, durable.FS{})
	if err != nil {
		t.Fatal(err)
	}
	if from := session.Unsent(); from != 2 {
		t.Errorf("what is not sent begins with segment %d, want 2", from)
	}
	if err := session.Erase(map[int64][]int{1: {0}, 3: {0}, 9: {0}}, "forgotten"); err != nil {
		t.Fatal(err)
	}
	want := []string{`{"type":"user","n":0}`, `{"type":"user","n":1}`, erased, `{"type":"user","n":3}`}
	if diff := cmp.Diff(want, bodies(t, session)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	cursor := session.State().Cursors[read.Main]
	if !cursor.NoSummaries || cursor.Hushed != "forgotten" {
		t.Errorf("what retells the lines would be heard: %+v", cursor)
	}
	receipts, err := Receipts(dir, id)
	if err != nil || len(receipts) != 4 {
		t.Fatalf("%d receipts, %v", len(receipts), err)
	}
	for i, g := range session.State().Segments {
		r := receipts[i]
		if r.Seq != g.Seq || r.Chain != g.Chain || r.First != int64(i+1) || r.Lines != 1 {
			t.Errorf("receipt %+v of segment %+v", r, g)
		}
		if diff := cmp.Diff([]time.Time{at.Add(time.Duration(i) * time.Minute)}, r.Times()); diff != "" {
			t.Errorf("times (-want +got):\n%s", diff)
		}
	}
	again := open(t, dir, durable.FS{})
	if reopened, _ := again.Session(id); reopened == nil || again.Bytes() == 0 {
		t.Error("the spool cannot be opened again")
	}
}

// TestEraseTakesOutWhatTheClusterWasNotTold: that an object lies in a slot, or may,
// is no reason to let its words be named later.
func TestEraseTakesOutWhatTheClusterWasNotTold(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*State)
		want   []string // of lines 2 and 3
	}{
		"in a slot": {reason: "nobody knows of it", change: func(*State) {}, want: []string{erased, erased}},
		"maybe told": {
			reason: "the answer was lost: the cluster may have its chain", change: func(s *State) { s.Told = 2 },
			want: []string{`{"type":"user","n":1}`, erased},
		},
		"asked for again": {
			reason: "the cluster has its chain", change: func(s *State) { s.Segments[1].ResentAt = &at },
			want: []string{`{"type":"user","n":1}`, erased},
		},
	} {
		t.Run(name, func(t *testing.T) {
			session, err := fourSegments(t, t.TempDir(), durable.FS{})
			if err != nil {
				t.Fatal(err)
			}
			if err := session.Update(func(s *State) {
				s.Segments[1].Slot, s.Segments[1].SlotState = 8, SlotUploaded
				s.Segments[2].Slot, s.Segments[2].SlotState = 9, SlotTaken
				tc.change(s)
			}); err != nil {
				t.Fatal(err)
			}
			if err := session.Erase(map[int64][]int{1: {0}, 2: {0}, 3: {0}}, "forgotten"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, bodies(t, session)[1:3]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, g := range session.State().Segments[2:] {
				if g.SlotState != SlotNone || g.Slot != 0 {
					t.Errorf("%s: segment %d, which has another digest now, is in slot %d, %s", tc.reason, g.Seq, g.Slot, g.SlotState)
				}
			}
		})
	}
}

// TestEraseSurvivesAStopAfterEveryFileOperation: whoever opens the spool next
// brings it to its end.
func TestEraseSurvivesAStopAfterEveryFileOperation(t *testing.T) {
	erase := func(session *Session) error { return session.Erase(map[int64][]int{2: {0}, 4: {0}}, "forgotten") }
	for stop := 0; ; stop++ {
		dir, n, armed := t.TempDir(), 0, false
		fs := durable.FS{Before: func(durable.Op, string) error {
			if n++; armed && n > stop {
				return errStopped
			}
			return nil
		}}
		session, err := fourSegments(t, dir, fs)
		if err != nil {
			t.Fatal(err)
		}
		n, armed = 0, true
		err = erase(session)
		if err != nil && !errors.Is(err, errStopped) {
			t.Fatalf("stop after %d: %v", stop, err)
		}
		reopened, ok := open(t, dir, durable.FS{}).Session(id)
		if !ok {
			t.Fatalf("stop after %d: the session is gone", stop)
		}
		lines := strings.Join(bodies(t, reopened), "\n")
		none := strings.Join([]string{`{"type":"user","n":0}`, `{"type":"user","n":1}`, `{"type":"user","n":2}`, `{"type":"user","n":3}`}, "\n")
		all := strings.Join([]string{`{"type":"user","n":0}`, erased, `{"type":"user","n":2}`, erased}, "\n")
		if lines != all && lines != none {
			t.Errorf("stop after %d: half of it was done:\n%s", stop, lines)
		}
		if err == nil {
			if lines != all {
				t.Errorf("nothing was erased:\n%s", lines)
			}
			if stop < 6 {
				t.Errorf("only %d operations: the test sees too few of them", stop)
			}
			return
		}
	}
}
