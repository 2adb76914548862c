package daemon

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
)

// TestOver: a session is kept for as long as anything of it can be asked for.
func TestOver(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	old, dir := now.AddDate(0, 0, -31), t.TempDir()
	there, gone := dir, filepath.Join(dir, "gone.jsonl")
	for name, tt := range map[string]struct {
		reason string
		state  spool.State
		path   string
		want   bool
	}{
		"done":                 {"all is in the archive", spool.State{FirstNote: old}, gone, true},
		"transcript there":     {"it may be resumed", spool.State{FirstNote: old}, there, false},
		"recent":               {"it may be asked for", spool.State{FirstNote: now}, gone, false},
		"waits":                {"it is not in the archive", spool.State{FirstNote: old, Segments: []spool.Segment{{Seq: 1}}}, gone, false},
		"asked for":            {"the cluster waits for an answer", spool.State{FirstNote: old, Gone: []int64{1}}, gone, false},
		"withdrawn":            {"a deleted session is not kept for ever", spool.State{FirstNote: old, Withdrawn: true, Gone: []int64{1}, Processed: spool.Processed{Lag: 3}}, gone, true},
		"withdrawn, there":     {"else it would be read again", spool.State{FirstNote: old, Withdrawn: true}, there, false},
		"withdrawn just now":   {"the cluster may still ask", spool.State{FirstNote: now, Withdrawn: true}, gone, false},
		"withdrawn, processed": {"the cluster may still ask", spool.State{FirstNote: old, Withdrawn: true, Processed: spool.Processed{At: now}}, gone, false},
	} {
		t.Run(name, func(t *testing.T) {
			tt.state.Transcript = tt.path
			tt.state.Cursors = map[string]read.Cursor{read.Main: {Path: tt.path}}
			if got := over(&tt.state, now); got != tt.want {
				t.Errorf("%s: over is %v", tt.reason, got)
			}
		})
	}
}

// TestAWithdrawnSessionIsPruned when its transcript is gone.
func TestAWithdrawnSessionIsPruned(t *testing.T) {
	e := newEvening(t, rand.New(rand.NewPCG(1, 2)))
	session, err := e.loop.spool.Ensure("8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c77", e.loop.clock.Now().AddDate(0, 0, -31))
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Withdraw(); err != nil {
		t.Fatal(err)
	}
	e.loop.sweep(true)
	if _, ok := e.loop.spool.Session(session.State().SessionID); ok {
		t.Error("the session is kept for ever")
	}
}
