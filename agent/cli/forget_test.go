package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
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
	if want := "1 line that had not left this computer erased; nothing of the last 10m will be read again.\nNothing else of it has left this computer.\n"; out != want || code != 0 {
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
	waiting, err := upload.Wishes(home)
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

// TestForgetErasesWhatLiesInASlot: the store took the words and the cluster was not
// told: it is not told of them later either, and asked to empty the inbox.
func TestForgetErasesWhatLiesInASlot(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		entry  *v1alpha1.Writer
		says   string
		asks   int
	}{
		"no entry": {reason: "there is nothing to ask", says: "may lie in the bucket's inbox"},
		"an entry": {reason: "the inbox is emptied", entry: &v1alpha1.Writer{}, asks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := agreedMachine(t)
			home := filepath.Join(m.dir, "state")
			session := spooled(t, home, filepath.Join(m.dir, "x.jsonl"), now)
			need(t, session.Update(func(state *spool.State) {
				state.Segments[0].Slot, state.Segments[0].SlotState, state.Applied = 4, spool.SlotUploaded, test.entry
			}))
			_, out, errs := m.run("forget", "--last", "10m")
			if !strings.Contains(out, "1 line that had not left this computer erased") || !strings.Contains(out, test.says) {
				t.Errorf("%s: it says %q, %q", test.reason, out, errs)
			}
			if state := reopened(t, home, talked); state.Segments[0].SlotState != spool.SlotNone {
				t.Errorf("%s: segment %+v", test.reason, state.Segments[0])
			}
			waiting, err := upload.Wishes(home)
			need(t, err)
			if len(waiting) != test.asks {
				t.Errorf("%s: what is to be asked: %+v", test.reason, waiting)
			}
		})
	}
}

// TestForgetTwice: the cluster has no Session any more that could answer again, and
// nothing is to be feared.
func TestForgetTwice(t *testing.T) {
	m, _ := agreedMachine(t)
	home := filepath.Join(m.dir, "state")
	session := spooled(t, home, filepath.Join(m.dir, "x.jsonl"), now)
	need(t, session.Withdraw())
	config, err := note.LoadConfig(home)
	need(t, err)
	wish := upload.Wish{
		For: upload.Addressee(config), SessionID: talked, Name: "s", Whole: true, Answered: true, Result: "forgotten in the cluster. The Session is deleted.",
		Request: v1alpha1.Request{ID: "forget-1", Kind: v1alpha1.RequestForget},
	}
	need(t, upload.UpdateWishes(t.Context(), home, func([]upload.Wish) []upload.Wish { return []upload.Wish{wish} }))
	if code, out, errs := m.run("forget", "--retry"); code != 0 || !strings.Contains(out, "The Session is deleted") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
	for range 2 {
		if code, out, errs := m.run("forget", talked); code != 0 || !strings.Contains(out, "was forgotten on") {
			t.Errorf("again: exit %d, %q, %q", code, out, errs)
		}
	}
	if _, out, _ := m.run("status"); strings.Contains(out, "forget ") {
		t.Errorf("it is said still:\n%s", out)
	}
	need(t, session.Update(func(s *spool.State) { s.Withdrawn = false })) // a lead made it again
	if code, out, _ := m.run("forget", talked); code != 1 || strings.Contains(out, "was forgotten on") {
		t.Errorf("what goes on is asked for again: exit %d, %q", code, out)
	}
}

// TestForgetLeavesQuietSessionsAlone: of a session in which nothing was said in
// that time no later summary is withheld.
func TestForgetLeavesQuietSessionsAlone(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		written time.Duration // before now
		hushed  bool
	}{
		"quiet":  {"nothing of it is meant", time.Hour, false},
		"unread": {"what was written in that time may be among what was not read", time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := agreedMachine(t)
			home := filepath.Join(m.dir, "state")
			transcript := filepath.Join(m.dir, ".claude", "projects", "-tide", talked+".jsonl")
			session := spooled(t, home, transcript, now.Add(-time.Hour))
			if err := os.Chtimes(transcript, now.Add(-test.written), now.Add(-test.written)); err != nil {
				t.Fatal(err)
			}
			if code, _, errs := m.run("forget", "--last", "10m"); code != 0 {
				t.Fatalf("exit %d, %s", code, errs)
			}
			if cursor := reopened(t, home, session.State().SessionID).Cursors[read.Main]; (cursor.Hushed != "") != test.hushed || cursor.NoSummaries != test.hushed {
				t.Errorf("%s: cursor %+v", test.reason, cursor)
			}
		})
	}
}

// spooled is a session of which one line was read, into a fresh spool.
func spooled(t *testing.T, home, transcript string, at time.Time) *spool.Session {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(home, "sessions")); err != nil {
		t.Fatal(err)
	}
	queue, err := spool.Open(spool.Options{Dir: filepath.Join(home, "sessions"), Owner: "ada", Workstation: "wks-a"})
	if err != nil {
		t.Fatal(err)
	}
	session, err := queue.Ensure(talked, at)
	if err != nil {
		t.Fatal(err)
	}
	err = session.Append(read.Main, read.Batch{
		Header: segment.Header{
			Stream: read.Main, EndOffset: 10, Offsets: []int64{0}, Indexes: []int64{0}, Rules: redact.RulesVersion, At: at,
		},
		Lines: []redact.Redacted{redact.Literal(`{"type":"user","uuid":"a"}`)}, Times: []time.Time{at},
		Cursor: read.Cursor{Path: transcript, Offset: 10, NextIndex: 1}, Moved: true,
		Project: &read.Project{Name: "tide", Remote: "git.example.com/alpha/tide"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Update(func(state *spool.State) { state.Transcript = transcript }); err != nil {
		t.Fatal(err)
	}
	return session
}

func reopened(t *testing.T, home, id string) spool.State {
	t.Helper()
	queue, err := spool.Open(spool.Options{Dir: filepath.Join(home, "sessions"), Owner: "ada", Workstation: "wks-a"})
	if err != nil {
		t.Fatal(err)
	}
	session, ok := queue.Session(id)
	if !ok {
		t.Fatal("the session is gone")
	}
	return session.State()
}

// TestForgetTellsOfLinesItDoesNotKnow: without receipts nobody knows which lines
// have left.
func TestForgetTellsOfLinesItDoesNotKnow(t *testing.T) {
	m, _ := agreedMachine(t)
	home := filepath.Join(m.dir, "state")
	transcript := filepath.Join(m.dir, ".claude", "projects", "-tide", talked+".jsonl")
	spooled(t, home, transcript, now.Add(-time.Hour))
	const told = "does not know any more which lines it sent first"
	if _, out, errs := m.run("forget", "--last", "10m"); strings.Contains(out, told) {
		t.Errorf("told of a session that is whole: %q, %s", out, errs)
	}
	if err := os.Remove(filepath.Join(home, "sessions", talked, "receipts.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, out, errs := m.run("forget", "--last", "10m"); !strings.Contains(out, told) {
		t.Errorf("printed %q, %s", out, errs)
	}
}

func TestAccounted(t *testing.T) {
	sum := func(n byte) segment.Sum { return segment.Sum{n} }
	one := segment.Start("s-1", "wks-a").NextDigest(sum(1))
	two := one.NextDigest(sum(2))
	first := spool.Receipt{Seq: 1, Digest: sum(1).String(), Chain: one.String()}
	second := spool.Receipt{Seq: 2, Digest: sum(2).String(), Chain: two.String()}
	other := spool.Receipt{Seq: 1, Digest: sum(3).String(), Chain: segment.Start("s-1", "wks-a").NextDigest(sum(3)).String()}
	head := spool.Mark{Segments: 2, Chain: two.String()}
	for name, test := range map[string]struct {
		reason   string
		receipts []spool.Receipt
		head     spool.Mark
		want     bool
	}{
		"all":       {"one for each", []spool.Receipt{first, second}, head, true},
		"one more":  {"of a segment that a crash undid", []spool.Receipt{first, second}, spool.Mark{Segments: 1, Chain: one.String()}, true},
		"nothing":   {"nothing was made", nil, spool.Mark{}, true},
		"none":      {"the receipts are lost", nil, head, false},
		"first":     {"what came before a reset is not known", []spool.Receipt{second}, head, false},
		"last":      {"the newest is lost", []spool.Receipt{first}, head, false},
		"old chain": {"that segment was made anew", []spool.Receipt{other, second}, head, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := accounted(test.receipts, &spool.State{Name: "s-1", Head: test.head}, "wks-a"); got != test.want {
				t.Errorf("%s: accounted is %v", test.reason, got)
			}
		})
	}
}

// TestTwoForgetsLoseNoWish: what another command puts in while the cluster is
// asked stays, and what the daemon has asked for is told without the cluster.
func TestTwoForgetsLoseNoWish(t *testing.T) {
	m, _ := agreedMachine(t)
	home := filepath.Join(m.dir, "state")
	wish := func(id, result string) upload.Wish {
		return upload.Wish{SessionID: talked, Result: result, Request: v1alpha1.Request{ID: id}}
	}
	need(t, upload.UpdateWishes(t.Context(), home, func([]upload.Wish) []upload.Wish {
		return []upload.Wish{wish("a", ""), wish("b", "refused: not yours\x1b[31m.")}
	}))
	err := m.settle(t.Context(), home, []upload.Wish{wish("a", "")}, func(upload.Wish) (string, error) {
		return "", upload.UpdateWishes(t.Context(), home, func(list []upload.Wish) []upload.Wish { return append(list, wish("c", "")) })
	})
	need(t, err)
	m.out.Reset()
	code, out, errs := m.run("forget", "--retry")
	if want := "Session " + talked + ": refused: not yours"; code != 1 || !strings.HasPrefix(out, want) || strings.Contains(out, "\x1b") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
	left, err := upload.Wishes(home)
	if diff := cmp.Diff([]upload.Wish{wish("c", "")}, left); diff != "" || err != nil {
		t.Errorf("waiting: %v (-want +got):\n%s", err, diff)
	}
}

// TestStatusTellsOfForgetting: what waits, for whom, and what became of it.
func TestStatusTellsOfForgetting(t *testing.T) {
	m, _ := agreedMachine(t)
	home := filepath.Join(m.dir, "state")
	config, err := note.LoadConfig(home)
	need(t, err)
	for name, tt := range map[string]struct {
		reason string
		wish   upload.Wish
		off    bool
		state  string
		says   string
	}{
		"waiting":      {reason: "the daemon asks", wish: upload.Wish{For: upload.Addressee(config)}, state: "waiting", says: "the daemon asks again when it can"},
		"off":          {reason: "no daemon will run", wish: upload.Wish{For: upload.Addressee(config)}, off: true, state: "waiting", says: "undersong forget --retry"},
		"another team": {reason: "the daemon asks nobody else", wish: upload.Wish{For: "elsewhere"}, state: "retry", says: "undersong forget --retry"},
		"absent":       {reason: "only a lead can help", wish: upload.Wish{For: upload.Addressee(config), Absent: true}, state: "absent", says: "ask a lead"},
		"answered":     {reason: "nobody was told", wish: upload.Wish{For: upload.Addressee(config), Result: "refused: not yours."}, state: "answered", says: "refused: not yours."},
	} {
		t.Run(name, func(t *testing.T) {
			tt.wish.SessionID = talked
			need(t, upload.UpdateWishes(t.Context(), home, func([]upload.Wish) []upload.Wish { return []upload.Wish{tt.wish} }))
			config.Off = tt.off
			need(t, note.SaveConfig(home, config))
			_, out, errs := m.run("status")
			if !strings.Contains(out, tt.says) {
				t.Errorf("%s: there is no %q in\n%s%s", tt.reason, tt.says, out, errs)
			}
			r, err := m.report()
			need(t, err)
			if len(r.Forget) != 1 || r.Forget[0].State != tt.state {
				t.Errorf("%s: %+v, want %s", tt.reason, r.Forget, tt.state)
			}
		})
	}
}

// TestUninstallTellsOfForgetting: it takes the one away who asks, and erases no
// wish unasked.
func TestUninstallTellsOfForgetting(t *testing.T) {
	m, _ := agreedMachine(t)
	home := filepath.Join(m.dir, "state")
	need(t, os.RemoveAll(filepath.Join(home, "sessions"))) // it is no spool's
	need(t, upload.UpdateWishes(t.Context(), home, func([]upload.Wish) []upload.Wish {
		return []upload.Wish{{SessionID: talked}, {SessionID: talked, Result: "forgotten in the cluster."}}
	}))
	const says = "1 request to the cluster to forget something is not answered yet"
	if code, _, errs := m.run("uninstall", "--yes", "--erase"); code != 1 || !strings.Contains(errs, says) {
		t.Errorf("with --erase: exit %d, %q", code, errs)
	}
	if code, out, errs := m.run("uninstall", "--yes"); code != 0 || !strings.Contains(out, says) {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
	if list, err := upload.Wishes(home); err != nil || len(list) != 2 {
		t.Errorf("kept are %+v, %v", list, err)
	}
	if code, _, errs := m.run("uninstall", "--yes", "--erase", "--discard"); code != 0 {
		t.Errorf("with --discard: exit %d, %q", code, errs)
	}
}

// TestUntold: the cluster not being told of a session does not mean that nothing of
// it has left.
func TestUntold(t *testing.T) {
	at := func(to spool.SlotState) []spool.Segment { return []spool.Segment{{Seq: 1, SlotState: to}} }
	for name, tc := range map[string]struct {
		state          spool.State
		unsent, stored bool
	}{
		"nothing was read":        {spool.State{}, true, false},
		"nothing has left":        {spool.State{Segments: at(spool.SlotNone)}, true, false},
		"on its way":              {spool.State{Segments: at(spool.SlotTaken)}, true, true},
		"in the store":            {spool.State{Segments: at(spool.SlotUploaded)}, true, true},
		"withdrawn, never sent":   {spool.State{Withdrawn: true, Verified: spool.Mark{Segments: 1}}, true, false},
		"withdrawn, once sent":    {spool.State{Withdrawn: true, Sent: true, Verified: spool.Mark{Segments: 1}}, true, true},
		"refused, and none since": {spool.State{Sent: true, Segments: at(spool.SlotNone)}, true, true},
		"told":                    {spool.State{UID: "u", Sent: true, Segments: at(spool.SlotUploaded)}, false, false},
		"told before it expired":  {spool.State{Expired: true, Sent: true}, false, false},
		"of another registration": {spool.State{Verified: spool.Mark{Segments: 1}}, false, false},
	} {
		if unsent, stored := untold(&tc.state); unsent != tc.unsent || stored != tc.stored {
			t.Errorf("%s: unsent %v, stored %v; want %v, %v", name, unsent, stored, tc.unsent, tc.stored)
		}
	}
}

// TestForgetTakesMessagesBack: of the session, since then, and no others.
func TestForgetTakesMessagesBack(t *testing.T) {
	home := t.TempDir()
	now := time.Date(2026, 5, 4, 18, 0, 0, 0, time.UTC)
	for id, w := range map[string]whisper.Whisper{
		"old":   {Session: "s", At: now.Add(-time.Hour)},
		"new":   {Session: "s", At: now},
		"other": {Session: "t", At: now},
	} {
		w.ID, w.Text, w.Memory, w.Expires = id, "words", "main", now.Add(time.Hour)
		if err := whisper.Put(home, w); err != nil {
			t.Fatal(err)
		}
	}
	if err := unsay(home, "s", now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	kept, err := whisper.List(home)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, k := range kept {
		states[k.ID] = k.State
	}
	if states["new"] == states["old"] || states["other"] != states["old"] || len(states) != 3 {
		t.Errorf("states %v, want the new one of the session withdrawn alone", states)
	}
}
