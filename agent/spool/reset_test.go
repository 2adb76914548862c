package spool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

func TestResetGoesOnFromWhatTheClusterHas(t *testing.T) {
	chain := segment.Start("x", "y").String()
	entry := &v1alpha1.Writer{Workstation: workstation, Segments: 7, Lines: 70, Bytes: 700, Chain: chain}
	type test struct {
		reason string
		damage bool
		entry  *v1alpha1.Writer
		want   int64 // number of the next segment
	}
	for name, tt := range map[string]test{
		"disagree":     {"the chain goes on from the entry", false, entry, 8},
		"damaged":      {"whatever the state was", true, entry, 8},
		"never listed": {"from the beginning", false, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			session, err := open(t, dir, durable.FS{}).Ensure(id, at)
			if err != nil {
				t.Fatal(err)
			}
			err = session.Update(func(state *State) { state.Transcript = "/p/s.jsonl" })
			if err := errors.Join(err, session.Append(read.Main, batch(0)), session.Append(read.Main, batch(1))); err != nil {
				t.Fatal(err)
			}
			if tt.damage {
				if err := os.WriteFile(filepath.Join(dir, id, stateFile), []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := Options{Dir: dir, Owner: owner, Workstation: workstation}
			if err := Reset(o, id, "uid", tt.entry); err != nil {
				t.Fatalf("Reset: %v", err)
			}
			s := open(t, dir, durable.FS{})
			again, ok := s.Session(id)
			if !ok || s.Bytes() != 0 {
				t.Fatalf("%s: the session is not usable: damaged %v", tt.reason, s.Damaged())
			}
			state := again.State()
			if state.UID != "uid" || state.Cursors[read.Main].Offset != 0 || !tt.damage && state.Transcript != "/p/s.jsonl" {
				t.Errorf("%s: state %+v", tt.reason, state)
			}
			if err := again.Append(read.Main, batch(0)); err != nil {
				t.Fatalf("Append: %v", err)
			}
			if got := again.State().Head.Segments; got != tt.want {
				t.Errorf("%s: the next segment is %d, want %d", tt.reason, got, tt.want)
			}
			if tt.entry != nil && again.State().Head.Lines != 71 {
				t.Errorf("%s: %d lines, want 71", tt.reason, again.State().Head.Lines)
			}
		})
	}
	if err := Reset(Options{Dir: t.TempDir(), Owner: owner}, id, "", nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("a session that nobody knows: %v", err)
	}
}

// TestResetKeepsWhatIsNotToBeHeard: what a session is, and what was withheld of
// it, is the same after it was started over, however often.
func TestResetKeepsWhatIsNotToBeHeard(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(t.TempDir(), "s.jsonl")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: dir, Owner: owner, Workstation: workstation}
	kept := func(from int64, reason string) read.Withheld {
		return read.Withheld{Range: segment.Range{FromOffset: from, ToOffset: from + 1, Reason: reason}, Since: at, Until: at}
	}
	session, err := open(t, dir, durable.FS{}).Ensure(id, at)
	if err != nil {
		t.Fatal(err)
	}
	err = session.Update(func(state *State) {
		state.Transcript, state.ForkedAt, state.ForkedFrom, state.Nested, state.Entrypoint = path, at, "from", true, "sdk-cli"
	})
	left := batch(0)
	left.Cursor.Path, left.Withheld = path, []read.Withheld{kept(2, "excluded")}
	waits := batch(1)
	waits.Lines, waits.Cursor.Path, waits.Cursor.Pending = nil, path, []read.Withheld{kept(4, "paused")}
	if err := errors.Join(err, session.Append(read.Main, left), session.Append(read.Main, waits)); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if err := Reset(o, id, "uid", nil); err != nil {
			t.Fatalf("Reset: %v", err)
		}
		again, _ := open(t, dir, durable.FS{}).Session(id)
		state := again.State()
		if !state.ForkedAt.Equal(at) || state.ForkedFrom != "from" || !state.Nested || state.Entrypoint != "sdk-cli" {
			t.Errorf("round %d: of what the session is, something is lost: %+v", round, state)
		}
		var reasons []string
		for _, k := range state.Cursors[read.Main].Kept {
			reasons = append(reasons, k.Reason)
		}
		if len(reasons) != 2 || reasons[0] != "excluded" || reasons[1] != "paused" {
			t.Errorf("round %d: withheld are %v", round, reasons)
		}
		all, err := again.Withheld(read.Main)
		if err != nil || len(all) != 1 || all[0].Reason != "excluded" {
			t.Errorf("round %d: receipts name %+v, %v", round, all, err)
		}
	}
}
