package status

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// TestWhoseIndex: an index in the state file is the plugin's only if we did not
// write it, wherever a run of ours was cut off.
func TestWhoseIndex(t *testing.T) {
	const id = "11111111-0000-4000-8000-000000000000"
	type index struct{ Wrote, Writing, Plugin, File *int64 }
	at := func(n int64) *int64 { return &n }
	for name, tt := range map[string]struct {
		reason string
		before index
		broken bool // the file cannot be written
		want   index
	}{
		"the first":               {reason: "nothing was there", want: index{Wrote: at(4), File: at(4)}},
		"the next":                {reason: "ours was there", before: index{Wrote: at(2), File: at(2)}, want: index{Wrote: at(4), File: at(4)}},
		"the plugin's":            {reason: "we did not write it", before: index{File: at(2)}, want: index{Wrote: at(4), Plugin: at(2), File: at(4)}},
		"cut off behind the file": {reason: "it is ours", before: index{Writing: at(3), File: at(3)}, want: index{Wrote: at(4), File: at(4)}},
		"cut off behind the file, and the same again": {reason: "it is ours", before: index{Writing: at(4), File: at(4)}, want: index{Wrote: at(4), File: at(4)}},
		"cut off before the file":                     {reason: "what was there is ours, too", before: index{Wrote: at(2), Writing: at(4), File: at(2)}, want: index{Wrote: at(4), File: at(4)}},
		"cut off before the plugin's": {
			reason: "it was noted before", before: index{Writing: at(4), Plugin: at(7), File: at(7)}, want: index{Wrote: at(4), Plugin: at(7), File: at(7)},
		},
		"cut off before the first":      {reason: "nothing is there", before: index{Writing: at(4)}, want: index{Wrote: at(4), File: at(4)}},
		"a file that cannot be written": {reason: "first it is noted", broken: true, want: index{Writing: at(4)}},
	} {
		t.Run(name, func(t *testing.T) {
			cwd := t.TempDir()
			queue, err := spool.Open(spool.Options{Dir: filepath.Join(t.TempDir(), "sessions"), Owner: "ada", Workstation: "ws-1"})
			need(t, err)
			session, err := queue.Ensure(id, time.Date(2026, 5, 4, 18, 0, 0, 0, time.UTC))
			need(t, err)
			need(t, session.Update(func(s *spool.State) {
				s.Transcript, s.Cwd, s.ProjectDir = filepath.Join(cwd, id+".jsonl"), cwd, cwd
				s.WroteIndex, s.WritingIndex, s.PluginIndex = tt.before.Wrote, tt.before.Writing, tt.before.Plugin
			}))
			dir, err := statefile.Dir(cwd, "", id, cwd)
			need(t, err)
			if n := tt.before.File; n != nil {
				need(t, statefile.Write(dir, statefile.State{SessionID: id, LastProcessedIndex: *n}))
			}
			if tt.broken {
				need(t, os.WriteFile(filepath.Join(dir, ".letta"), nil, 0o600))
			}
			live := &v1alpha1.Session{}
			live.Status.SyncState = &v1alpha1.SyncState{Writers: []v1alpha1.WriterSync{{Workstation: "ws-1", LastProcessedIndex: 4}}}
			if err := (&Watcher{Workstation: "ws-1"}).stateFiles(session, live); (err != nil) != tt.broken {
				t.Errorf("%s: %v", tt.reason, err)
			}
			state := session.State()
			got := index{Wrote: state.WroteIndex, Writing: state.WritingIndex, Plugin: state.PluginIndex}
			if had, err := statefile.Read(dir, id); err == nil && had.LastProcessedIndex >= 0 {
				got.File = &had.LastProcessedIndex
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
