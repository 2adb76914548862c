package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
)

const (
	statusFile  = "status.json"
	maxSnapshot = 8 << 20

	// maxListed bounds the sessions of a snapshot: those that wait or have
	// trouble, then the newest.
	maxListed = 50

	// snapshotGap is the least time between two snapshots.
	snapshotGap = 500 * time.Millisecond
)

// Snapshot is what status.json says, for undersong status.
type Snapshot struct {
	Version   int       `json:"version"`
	WrittenAt time.Time `json:"writtenAt"`
	Running   bool      `json:"running"`
	Daemon    Info      `json:"daemon"`

	Workstation string `json:"workstation"`
	Online      bool   `json:"online"`      // the API server answered the newest connection
	LoginNeeded bool   `json:"loginNeeded"` // the user must log in to the cluster
	Revoked     bool   `json:"revoked"`     // the Workstation was deleted
	Memory      Policy `json:"memory"`

	Waiting Waiting          `json:"waiting"`
	Trouble []Trouble        `json:"trouble"`
	Session []SessionSummary `json:"sessions"`
}

// Policy is what is known of the memory's policy.
type Policy struct {
	Known   bool     `json:"known"`
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	Recall  bool     `json:"recall"`
}

// Waiting is what is not yet known to be in the archive.
type Waiting struct {
	Segments int64      `json:"segments"`
	Bytes    int64      `json:"bytes"`
	Oldest   *time.Time `json:"oldest,omitempty"`
}

// SessionSummary is how far one session is, in lines.
type SessionSummary struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Project  string `json:"project,omitempty"` // empty: nothing of it may be heard so far
	State    string `json:"state"`             // Active, Ended or Deleted
	Read     int64  `json:"read"`
	Uploaded int64  `json:"uploaded"`
	Verified int64  `json:"verified"`
	Segments int64  `json:"segments"` // that wait
	Lag      int64  `json:"lag"`      // lines that the memory has not processed, as far as is known
}

// snapshots writes status.json when something changed, until ctx is done.
func (d *daemon) snapshots(ctx context.Context) {
	var last []byte
	for {
		last = d.write(d.snapshot(true), last)
		select {
		case <-ctx.Done():
			return
		case <-d.shot:
		}
		timer := d.Clock.NewTimer(snapshotGap)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

func (d *daemon) writeSnapshot(running bool) { d.write(d.snapshot(running), nil) }

// write writes a snapshot unless only its time differs from the last.
func (d *daemon) write(s Snapshot, last []byte) []byte {
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		d.log.Error("Status cannot be written", "error", err)
		return last
	}
	if bytes.Equal(body, last) {
		return last
	}
	s.WrittenAt = d.Clock.Now().UTC()
	timed, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = durable.WriteFile(filepath.Join(d.Home, statusFile), timed)
	}
	if err != nil {
		d.log.Error("Status cannot be written", "error", err)
		return last
	}
	return body
}

// snapshot says how things stand.
func (d *daemon) snapshot(running bool) Snapshot {
	s := Snapshot{
		Version: 1, Running: running, Online: d.online.Load() && running,
		Daemon: Info{PID: os.Getpid(), StartedAt: d.started, Version: d.Version}, Trouble: d.trouble.all(),
	}
	for _, trouble := range s.Trouble {
		s.LoginNeeded = s.LoginNeeded || trouble.Part == upload.PartLogin
		s.Revoked = s.Revoked || trouble.Part == upload.PartWorkstation
	}
	if d.registry != nil {
		s.Workstation = d.registry.Name()
	}
	if d.view != nil {
		s.Memory.Include, s.Memory.Exclude, s.Memory.Known = d.view.Capture()
		s.Memory.Recall, _ = d.view.Recall()
	}
	if d.spool != nil {
		s.Session = d.summaries(s.Trouble)
		segments, oldest := backlog(d.spool)
		s.Waiting = Waiting{Segments: segments, Bytes: d.spool.Bytes()}
		if segments > 0 {
			s.Waiting.Oldest = &oldest
		}
	}
	return s
}

// summaries lists the sessions worth showing.
func (d *daemon) summaries(trouble []Trouble) []SessionSummary {
	troubled := map[string]bool{}
	for _, t := range trouble {
		if _, id, found := strings.Cut(t.Part, "/"); found {
			troubled[id] = true
		}
	}
	type item struct {
		SessionSummary
		first bool
		at    time.Time
	}
	var items []item
	for _, session := range d.spool.Sessions() {
		state := session.State()
		summary := summarize(&state)
		items = append(items, item{summary, summary.Segments > 0 || troubled[summary.ID], state.FirstNote})
	}
	slices.SortStableFunc(items, func(a, b item) int {
		if a.first != b.first {
			if a.first {
				return -1
			}
			return 1
		}
		return cmp.Or(b.at.Compare(a.at), strings.Compare(a.ID, b.ID))
	})
	list := make([]SessionSummary, 0, min(len(items), maxListed))
	for _, item := range items[:min(len(items), maxListed)] {
		list = append(list, item.SessionSummary)
	}
	return list
}

func summarize(state *spool.State) SessionSummary {
	s := SessionSummary{
		ID: state.SessionID, Name: state.Name, State: "Active",
		Read: state.Head.Lines, Verified: state.Verified.Lines, Segments: int64(len(state.Segments)),
	}
	if state.Project != nil {
		s.Project = state.Project.Remote
	}
	if state.Applied != nil {
		s.Uploaded = state.Applied.Lines
	}
	s.Lag, _ = waits(state)
	switch {
	case state.Withdrawn:
		s.State = "Deleted"
	case state.Ended:
		s.State = "Ended"
	}
	return s
}

// ReadSnapshot returns the newest snapshot, and false when there is none.
func ReadSnapshot(home string) (Snapshot, bool, error) {
	data, err := durable.ReadFile(filepath.Join(home, statusFile), maxSnapshot)
	if errors.Is(err, fs.ErrNotExist) {
		return Snapshot{}, false, nil
	}
	if err != nil {
		return Snapshot{}, false, fmt.Errorf("read %s: %w", statusFile, err)
	}
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil || s.Version != 1 {
		return Snapshot{}, false, fmt.Errorf("read %s: it is damaged or newer than this undersong", statusFile)
	}
	return s, true, nil
}
