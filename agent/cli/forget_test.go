package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
)

// TestWhatIsMeant: by the time of each line, and what has left as spans of the
// writer's lines.
func TestWhatIsMeant(t *testing.T) {
	minute := func(n int64) int64 { return now.Add(time.Duration(n) * time.Minute).UnixMilli() }
	receipts := []spool.Receipt{
		{Seq: 1, First: 1, Lines: 3, At: now.Add(3 * time.Minute), Millis: []int64{minute(1), 60_000, 60_000}}, // 1, 2, 3
		{Seq: 2, First: 4, Lines: 2, At: now.Add(4 * time.Minute), Millis: []int64{minute(0), 240_000}},        // 0, 4
		{Seq: 3, First: 6, Lines: 2, At: now.Add(5 * time.Minute), Millis: []int64{0, minute(1)}},              // made at 5, 1
		{Seq: 4, First: 8, Lines: 1, At: now.Add(9 * time.Minute)},                                             // undone by a crash
	}
	state := &spool.State{Head: spool.Mark{Segments: 3}}
	for name, test := range map[string]struct {
		reason string
		unsent int64
		since  time.Time
		lines  map[int64][]int
		spans  [][2]int64
		here   int64
	}{
		"all sent":     {"everything is asked of the cluster", 4, now.Add(2 * time.Minute), map[int64][]int{}, [][2]int64{{2, 3}, {5, 6}}, 0},
		"none sent":    {"everything is erased here", 1, now.Add(2 * time.Minute), map[int64][]int{1: {1, 2}, 2: {1}, 3: {0}}, nil, 4},
		"partly":       {"each where it is", 2, now.Add(2 * time.Minute), map[int64][]int{2: {1}, 3: {0}}, [][2]int64{{2, 3}}, 2},
		"all of it":    {"since ever", 4, time.Time{}, map[int64][]int{}, [][2]int64{{1, 7}}, 0},
		"nothing late": {"nothing was said since", 4, now.Add(time.Hour), map[int64][]int{}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			lines, spans, here := meant(receipts, state, test.unsent, test.since)
			if diff := cmp.Diff(test.lines, lines); diff != "" {
				t.Errorf("%s: here (-want +got):\n%s", test.reason, diff)
			}
			if diff := cmp.Diff(test.spans, spans); diff != "" || here != test.here {
				t.Errorf("%s: there, %d lines here, want %d (-want +got):\n%s", test.reason, here, test.here, diff)
			}
		})
	}
}

// TestManySpansAreJoined: a Session holds few requests.
func TestManySpansAreJoined(t *testing.T) {
	r := spool.Receipt{Seq: 1, First: 1, At: now}
	last := int64(0)
	for _, at := range []int64{9, 0, 9, 0, 0, 0, 9, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 0, 9} {
		millis := now.Add(time.Duration(at) * time.Minute).UnixMilli()
		r.Millis, last = append(r.Millis, millis-last), millis
		r.Lines++
	}
	_, spans, _ := meant([]spool.Receipt{r}, &spool.State{Head: spool.Mark{Segments: 1}}, 2, now.Add(time.Minute))
	want := [][2]int64{{1, 3}, {7, 10}, {14, 14}, {19, 19}}
	if diff := cmp.Diff(want, spans); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestForgetHere: without a cluster, what has not left is erased all the same,
// and what is to be asked is kept.
func TestForgetHere(t *testing.T) {
	m, clock := agreedMachine(t)
	home := filepath.Join(m.dir, "state")
	if err := os.RemoveAll(filepath.Join(home, "sessions")); err != nil { // it is no spool's
		t.Fatal(err)
	}
	queue, err := spool.Open(spool.Options{Dir: filepath.Join(home, "sessions"), Owner: "ada", Workstation: "wks-a"})
	if err != nil {
		t.Fatal(err)
	}
	session, err := queue.Ensure(talked, now)
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range []redact.Redacted{redact.Literal(`{"type":"user","uuid":"a"}`), redact.Literal(`{"type":"user","uuid":"b"}`)} {
		from := int64(n) * 10
		err := session.Append(read.Main, read.Batch{
			Header: segment.Header{
				Stream: read.Main, FirstIndex: int64(n), LastIndex: int64(n), Offset: from, EndOffset: from + 10,
				Offsets: []int64{from}, Indexes: []int64{int64(n)}, Rules: redact.RulesVersion, At: now,
			},
			Lines: []redact.Redacted{line}, Times: []time.Time{now.Add(time.Duration(n) * time.Hour)},
			Cursor: read.Cursor{Offset: from + 10, NextIndex: int64(n) + 1}, Moved: true,
			Project: &read.Project{Name: "tide", Remote: "git.example.com/alpha/tide"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	clock.Step(65 * time.Minute)
	code, out, errs := m.run("forget", "--last", "10m")
	if want := "1 line that had not left this computer erased; nothing of the last 10m0s will be read again.\nNothing else of it has left this computer.\n"; out != want || code != 0 {
		t.Errorf("exit %d, %q, %s", code, out, errs)
	}
	text := ""
	for seq := range int64(2) {
		packed, err := session.Read(seq + 1)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := segment.Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		_, lines, err := segment.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		text += string(lines[0]) + "\n"
	}
	if want := `{"type":"user","uuid":"a"}` + "\n" + `{"type":"undersong-stub","of":"forgotten/user","uuid":"b","bytes":0}` + "\n"; text != want {
		t.Errorf("the segments have\n%s", text)
	}
	known, err := consent.LoadSilences(home)
	if err != nil || len(known.List) != 1 || known.List[0].Reason != consent.ReasonForgotten || !known.List[0].Since.Equal(now.Add(55*time.Minute)) {
		t.Errorf("silences %+v, %v", known, err)
	}

	code, out, errs = m.run("forget", strings.ToUpper(talked))
	if code != 1 || !strings.Contains(out, "nothing more of it leaves this computer") || !strings.Contains(errs, "not forgotten yet: undersong forget --retry") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
	waiting, err := readAsked(home)
	if err != nil || len(waiting) != 1 || !waiting[0].Whole || waiting[0].SessionID != talked {
		t.Errorf("what is to be asked: %+v, %v", waiting, err)
	}
	again, err := spool.Open(spool.Options{Dir: filepath.Join(home, "sessions"), Owner: "ada", Workstation: "wks-a"})
	if err != nil {
		t.Fatal(err)
	}
	if one, _ := again.Session(talked); one == nil || !one.State().Withdrawn {
		t.Error("the session would be read again")
	}
	for reason, args := range map[string][]string{
		"neither": {"forget"}, "both": {"forget", "--last", "1m", talked}, "backwards": {"forget", "--last", "-1m"}, "a path": {"forget", "../x"},
	} {
		if code, _, errs := m.run(args...); code != 1 || !strings.HasPrefix(errs, "undersong: ") {
			t.Errorf("%s: exit %d, %q", reason, code, errs)
		}
	}
}
