package daemon

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/internal/segment"
)

// past is a workstation with transcripts that were written before init.
type past struct {
	*evening
	sent map[string]int64 // lines that the plugin sent, by session
	want func(*Past) bool

	// asked are the ids of the only sessions that are looked at; none means all.
	asked []string

	withheld []string // reasons in the segments that were taken
}

func newPast(t *testing.T) *past {
	t.Helper()
	return &past{evening: newEvening(t, rand.New(rand.NewPCG(1, 1))), sent: map[string]int64{}, want: func(*Past) bool { return true }}
}

// id is the n-th session's.
func id(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }

func (p *past) file(n int) string { return filepath.Join(p.projects, "-tide", id(n)+".jsonl") }

// line is a record of a session. more is added to it, or replaces what it has.
func (p *past) line(n int, uuid string, at time.Time, more map[string]any) string {
	p.tb.Helper()
	record := map[string]any{
		"type": "user", "uuid": uuid, "sessionId": id(n), "cwd": p.cwd, "entrypoint": "cli", "timestamp": at.UTC().Format(time.RFC3339Nano),
		"origin": map[string]any{"kind": "human"}, "message": map[string]any{"role": "user", "content": "words of " + uuid},
	}
	for name, value := range more {
		if record[name] = value; value == nil {
			delete(record, name)
		}
	}
	text, err := json.Marshal(record)
	p.must(err)
	return string(text) + "\n"
}

// put appends to a file.
func (p *past) put(path string, lines ...string) {
	p.tb.Helper()
	p.must(os.MkdirAll(filepath.Dir(path), 0o700))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	p.must(err)
	_, err = file.WriteString(strings.Join(lines, ""))
	p.must(err)
	p.must(file.Close())
}

// init is undersong init: what lies there now is of before.
func (p *past) init() {
	p.tb.Helper()
	p.clock.Step(time.Minute)
	_, err := WriteBaseline(p.home, p.projects)
	p.must(err)
	p.clock.Step(time.Second)
	p.config.ConsentedAt = p.clock.Now()
	p.must(note.SaveConfig(p.home, p.config))
	p.clock.Step(time.Minute)
	p.restart()
}

// survey says what would be imported of all transcripts of a folder.
func (p *past) survey(dir string) (all, chosen []*Past) {
	p.tb.Helper()
	list, err := Transcripts(dir, p.home)
	p.must(err)
	list = slices.DeleteFunc(list, func(one Transcript) bool { return len(p.asked) > 0 && !slices.Contains(p.asked, one.ID) })
	for i := range list {
		list[i].Sent = p.sent[list[i].ID]
	}
	s := &Survey{Home: p.home, Config: p.config, Clock: p.clock}
	all, err = s.Look(p.tb.Context(), list)
	p.must(err)
	return all, Choose(all, p.want)
}

// agree is undersong import with an answer of yes.
func (p *past) agree() {
	p.tb.Helper()
	_, chosen := p.survey(p.projects)
	h := History{At: p.clock.Now().UTC()}
	for _, one := range chosen {
		h.Sessions = append(h.Sessions, one.Plan())
	}
	before, err := LoadHistory(p.home, p.config)
	p.must(err)
	for _, one := range before.Sessions { // what is not done stays
		if !slices.ContainsFunc(h.Sessions, func(other HistorySession) bool { return other.ID == one.ID }) {
			h.Sessions = append(h.Sessions, one)
		}
	}
	p.must(SaveHistory(p.home, p.config, h))
}

// bring lets the daemon do all that it can, and returns the uuids of the lines
// that it brought in, in order; each must be in a segment that says so.
func (p *past) bring() (uuids []string) {
	p.tb.Helper()
	for range 10_000 {
		if !p.loop.bring(p.tb.Context()) {
			break
		}
		uuids = append(uuids, p.taken(true)...)
	}
	return uuids
}

// taken returns the uuids of what waits in the spool, and takes it away.
func (p *past) taken(imported bool) (uuids []string) {
	p.tb.Helper()
	for _, session := range p.loop.spool.Sessions() {
		state := session.State()
		for _, g := range state.Segments {
			h, lines := p.segment(session, g.Seq)
			for _, r := range h.Withheld {
				p.withheld = append(p.withheld, r.Reason)
			}
			if h.Import != imported || g.Import != imported {
				p.tb.Errorf("segment %d of %s: import is %v, in the state %v", g.Seq, state.SessionID, h.Import, g.Import)
			}
			for _, line := range lines {
				var record struct{ UUID string }
				p.must(json.Unmarshal(line, &record))
				uuids = append(uuids, record.UUID)
			}
		}
		p.must(session.Drop(state.Head.Segments))
	}
	return uuids
}

func (p *past) segment(session *spool.Session, seq int64) (segment.Header, [][]byte) {
	p.tb.Helper()
	packed, err := session.Read(seq)
	p.must(err)
	raw, err := segment.Unpack(packed)
	p.must(err)
	h, lines, err := segment.Decode(raw)
	p.must(err)
	return h, lines
}

// TestNothingOfASilenceIsImported: an evening of pauses, private sessions and
// sessions that are off, and then another init, after which all of it is of
// before. What was not to be heard is not imported, everything else is, once, and
// a session that is still private is left alone.
func TestNothingOfASilenceIsImported(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPast(t)
			p.evening = newEvening(t, rand.New(rand.NewPCG(seed, 11)))
			for range 250 {
				p.act()
			}
			for _, wrong := range p.end() {
				t.Fatal(wrong)
			}
			// Long after: nothing of it may be forgotten meanwhile.
			p.clock.Step(400 * 24 * time.Hour)
			p.must(note.Sweep(p.home, p.clock.Now()))
			p.say(func(s *consent.Silences, sizes map[string]int64) {
				s.End(consent.ReasonPaused, "", p.clock.Now(), sizes)
			})
			p.must(os.RemoveAll(filepath.Join(p.home, SessionsDir)))
			p.init()
			private := map[*silentTalk]bool{}
			for _, k := range p.talks {
				private[k] = k.private
			}
			owed := map[string]int{}
			for line, n := range p.got {
				if n == 0 && !private[p.of[line]] {
					owed[line] = 1
				}
			}
			p.agree()
			for _, line := range p.bring() {
				switch {
				case p.got[line] == banned:
					t.Errorf("%s is of a silence and was imported", line)
				case private[p.of[line]]:
					t.Errorf("%s is of a session that is private, and was imported", line)
				case p.got[line] == 0:
					owed[line]--
				}
			}
			for line, n := range owed {
				if n != 0 {
					t.Errorf("%s was imported %d times, want once", line, 1-n)
				}
			}
			if len(owed) == 0 {
				t.Error("nothing was to be imported: that is no test")
			}
		})
	}
}

// TestWhatIsImported: each thing that keeps a line from being imported.
func TestWhatIsImported(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		before func(p *past) // init, what was there before the lines of the session
		more   func(p *past) []string
		after  func(p *past)
		want   []string
		state  string
	}{
		"plain":   {reason: "that is what it is for", want: []string{"a", "b"}, state: HistoryReady},
		"private": {reason: "all of the session is left alone", after: func(p *past) { p.hush(consent.ReasonPrivate, id(1)) }, state: HistoryQuiet},
		"off": {reason: "it is switched off", after: func(p *past) {
			p.must(note.BeginOff(p.home, id(1), p.file(1), p.clock.Now()))
		}, state: HistoryQuiet},
		"forgotten": {reason: "the person took it back, though it was never sent", after: func(p *past) {
			sizes, err := Measure(p.home, p.projects)
			p.must(err)
			p.say(func(s *consent.Silences, _ map[string]int64) {
				s.Add(consent.Silence{
					Reason: consent.ReasonForgotten, Session: id(1), Until: p.clock.Now(), Projects: p.projects, Measured: true,
					Ranges: map[string]consent.Range{p.file(1): {To: sizes[p.file(1)]}},
				})
			})
		}, state: HistoryWithheld},
		"deleted": {reason: "somebody deleted the Session", after: func(p *past) {
			s, err := p.loop.spool.Ensure(id(1), p.clock.Now())
			p.must(err)
			p.must(s.Withdraw())
		}, state: HistoryDeleted},
		"excluded": {reason: "the person's own globs", after: func(p *past) {
			p.config.Exclude = []string{"git.example.com/alpha/tide"}
			p.must(note.SaveConfig(p.home, p.config))
			p.restart()
		}, state: HistoryWithheld},
		"not included": {reason: "the team's globs", after: func(p *past) {
			p.must(durable.WriteFile(filepath.Join(p.home, note.PolicyFile), []byte(`{"version":1,"include":["git.example.com/beta/*"]}`)))
			p.restart()
		}, state: HistoryWithheld},
		"opted out": {reason: "the repository's wish", after: func(p *past) {
			p.must(os.WriteFile(filepath.Join(p.cwd, ".undersong.yaml"), []byte("capture: off\n"), 0o600))
		}, state: HistoryWithheld},
		"headless": {reason: "nobody spoke", more: func(p *past) []string {
			return []string{p.line(1, "c", p.clock.Now(), map[string]any{"entrypoint": "sdk-cli"})}
		}, want: []string{"a", "b"}, state: HistoryReady},
		"elsewhere": {reason: "one session is one project", more: func(p *past) []string {
			return []string{p.line(1, "c", p.clock.Now(), map[string]any{"cwd": filepath.Dir(p.cwd)}), p.line(1, "d", p.clock.Now(), nil)}
		}, want: []string{"a", "b", "d"}, state: HistoryReady},
		"the plugin": {reason: "it has sent the first line", after: func(p *past) { p.sent[id(1)] = 1 }, want: []string{"b"}, state: HistoryReady},
		"an earlier registration": {reason: "the first line was heard under it", after: func(p *past) {
			p.aside(func(state *spool.State) {
				state.Cursors = map[string]read.Cursor{read.Main: {Offset: p.length(1)}}
			})
		}, want: []string{"b"}, state: HistoryReady},
		"imported under an earlier registration": {reason: "the first line was brought in under it", after: func(p *past) {
			p.aside(func(state *spool.State) {
				state.Imports = map[string]spool.Import{read.Main: {Cursor: read.Cursor{Offset: p.length(1)}}}
			})
		}, want: []string{"b"}, state: HistoryReady},
		"since init": {reason: "that is for the hooks to tell of", after: func(p *past) {
			p.put(p.file(1), p.line(1, "c", p.clock.Now(), nil))
		}, want: []string{"a", "b"}, state: HistoryReady},
		"since init, without a time": {reason: "the bytes tell", after: func(p *past) {
			p.put(p.file(1), p.line(1, "c", p.clock.Now(), map[string]any{"timestamp": nil}))
		}, want: []string{"a", "b"}, state: HistoryReady},
		"replaced since init": {reason: "its bytes are of after init", after: func(p *past) {
			p.must(os.Remove(p.file(1)))
			p.put(p.file(1), p.line(1, "x", p.clock.Now(), nil), p.line(1, "y", p.clock.Now(), nil))
		}, state: HistorySince},
		"a time to come": {reason: "it says nothing", more: func(p *past) []string {
			return []string{p.line(1, "c", p.clock.Now().AddDate(70, 0, 0), nil), p.line(1, "d", p.clock.Now(), nil)}
		}, want: []string{"a", "b", "c", "d"}, state: HistoryReady},
		"half a line at the end": {reason: "it waits", more: func(p *past) []string {
			return []string{strings.TrimSuffix(p.line(1, "c", p.clock.Now(), nil), "\n")}
		}, want: []string{"a", "b"}, state: HistoryReady},
		"no folder at first": {reason: "that of the next record stands in, and a summary is no retelling", before: func(p *past) {
			p.put(p.file(1), `{"type":"mode","mode":"default","sessionId":"`+id(1)+`"}`+"\n")
		}, more: func(p *past) []string {
			return []string{p.line(1, "c", p.clock.Now(), map[string]any{"isCompactSummary": true})}
		}, want: []string{"", "a", "b", "c"}, state: HistoryReady},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			if tt.before != nil {
				tt.before(p)
			}
			p.put(p.file(1), p.line(1, "a", p.clock.Now(), nil), p.line(1, "b", p.clock.Now().Add(time.Second), nil))
			if tt.more != nil {
				p.put(p.file(1), tt.more(p)...)
			}
			p.init()
			if tt.after != nil {
				tt.after(p)
			}
			all, chosen := p.survey(p.projects)
			if len(all) != 1 || all[0].State != tt.state {
				t.Fatalf("the survey says %+v, want %s: %s", all, tt.state, tt.reason)
			}
			if len(chosen) == 1 && chosen[0].Records != int64(len(tt.want)) || len(chosen) == 0 && len(tt.want) > 0 {
				t.Errorf("the survey speaks of %+v, want %d records: %s", chosen, len(tt.want), tt.reason)
			}
			p.agree()
			if diff := cmp.Diff(tt.want, p.bring()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
			// And once more: nothing is left.
			p.agree()
			if again := p.bring(); len(again) > 0 {
				t.Errorf("a second import brought %q", again)
			}
			if n := p.loop.history.open(); n != 0 {
				t.Errorf("%d sessions are not done", n)
			}
		})
	}
}

// hush begins a silence that goes on.
func (p *past) hush(reason, session string) {
	p.tb.Helper()
	p.say(func(s *consent.Silences, sizes map[string]int64) {
		s.Begin(reason, session, p.projects, p.clock.Now(), time.Time{}, sizes)
	})
}

// length is that of the first line of a session's transcript.
func (p *past) length(n int) int64 {
	p.tb.Helper()
	data, err := os.ReadFile(p.file(n))
	p.must(err)
	return int64(strings.IndexByte(string(data), '\n') + 1)
}

// aside leaves the state of the first session under an earlier registration.
func (p *past) aside(change func(*spool.State)) {
	p.tb.Helper()
	old, err := spool.Open(spool.Options{Dir: filepath.Join(p.home, SessionsDir+".wks-old"), Owner: p.config.Owner, Workstation: "wks-old"})
	p.must(err)
	s, err := old.Ensure(id(1), p.clock.Now())
	p.must(err)
	p.must(s.Update(change))
}

// TestWhatWasSaidAfterTheSurveyCounts: the person agrees to what the survey says,
// and then says something else.
func TestWhatWasSaidAfterTheSurveyCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		say    func(p *past)
		undo   func(p *past)
		now    int // sessions that are brought in
		later  int // when it was undone
	}{
		"pause": {"it waits", func(p *past) { p.hush(consent.ReasonPaused, "") }, func(p *past) {
			p.say(func(s *consent.Silences, sizes map[string]int64) {
				s.End(consent.ReasonPaused, "", p.clock.Now(), sizes)
			})
		}, 0, 2},
		"private": {"of one session", func(p *past) { p.hush(consent.ReasonPrivate, id(1)) }, func(*past) {}, 1, 0},
		"stop":    {"it is given up", func(p *past) { p.must(DropHistory(p.home)) }, func(*past) {}, 0, 0},
		"init for another team": {"nobody agreed to that", func(p *past) {
			p.config.Memory = "other"
			p.must(note.SaveConfig(p.home, p.config))
			p.restart()
		}, func(*past) {}, 0, 0},
		"it goes on": {"a session in which somebody works waits", func(p *past) {
			p.loop.active[id(1)] = p.clock.Now()
		}, func(p *past) { p.clock.Step(quietFor + time.Second) }, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			for n := 1; n <= 2; n++ {
				p.put(p.file(n), p.line(n, fmt.Sprintf("a%d", n), p.clock.Now(), nil))
			}
			p.init()
			p.agree()
			tt.say(p)
			if got := p.bring(); len(got) != tt.now {
				t.Errorf("%s: brought in were %q, want %d", tt.reason, got, tt.now)
			}
			tt.undo(p)
			if got := p.bring(); len(got) != tt.later {
				t.Errorf("%s: brought in later were %q, want %d", tt.reason, got, tt.later)
			}
		})
	}
}

// TestAnImportLeavesRoom: while nothing is archived little of it waits, and what
// is said now goes before it.
func TestAnImportLeavesRoom(t *testing.T) {
	p := newPast(t)
	for n := 1; n <= 20; n++ {
		p.put(p.file(n), p.line(n, fmt.Sprintf("a%d", n), p.clock.Now(), nil))
	}
	p.init()
	p.agree()
	for range 100 {
		if !p.loop.bring(t.Context()) {
			break
		}
	}
	waiting := 0
	for _, s := range p.loop.spool.Sessions() {
		state := s.State()
		waiting += len(state.Segments)
	}
	if waiting != 8 {
		t.Errorf("%d segments of an import wait, want 8", waiting)
	}
	p.put(p.file(30), p.line(30, "now", p.clock.Now(), nil))
	p.must(note.Write(p.home, note.Note{Event: eventStop, Session: id(30), Transcript: p.file(30), Cwd: p.cwd, Entrypoint: "cli", At: p.clock.Now()}))
	p.loop.takeNotes(t.Context())
	for _, id := range p.loop.agenda.due(p.clock.Now().Add(time.Minute)) {
		p.loop.step(t.Context(), id)
	}
	if first := p.loop.spool.Sessions()[0].State(); first.SessionID != id(30) || len(first.Segments) != 1 {
		t.Errorf("the first to be uploaded is %s with %d segments, want what was said now", first.SessionID, len(first.Segments))
	}
}

// TestAnImportGoesOnAfterEachStep: a new daemon after every step, and the result
// is that of one that was not disturbed.
func TestAnImportGoesOnAfterEachStep(t *testing.T) {
	p := newPast(t)
	var want []string
	for n := 1; n <= 3; n++ {
		for i := range 3 {
			uuid := fmt.Sprintf("l%d-%d", n, i)
			// Each is longer than half of what a segment holds.
			p.put(p.file(n), p.line(n, uuid, p.clock.Now(), map[string]any{"message": map[string]any{"role": "user", "content": strings.Repeat("word ", 500_000)}}))
			want = append(want, uuid)
		}
	}
	p.put(filepath.Join(p.projects, "-tide", id(1), "subagents", "agent-abc.jsonl"), p.line(1, "agent", p.clock.Now(), nil))
	want = append(want, "agent")
	p.init()
	p.agree()
	var got []string
	steps := 0
	for ; steps < 100; steps++ {
		p.restart()
		if !p.loop.bring(t.Context()) {
			break
		}
		got = append(got, p.taken(true)...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after %d steps (-want +got):\n%s", steps, diff)
	}
	if steps < len(want) {
		t.Errorf("only %d steps: that is no test", steps)
	}
	h, err := LoadHistory(p.home, p.config)
	p.must(err)
	progress := h.Progress(spool.States(filepath.Join(p.home, SessionsDir)))
	if progress.Sessions != 3 || progress.Read != 3 || progress.Archived != 3 || progress.Left != 0 {
		t.Errorf("the progress is %+v", progress)
	}
	// Claude Code's own cleanup takes transcripts away, and a state that nothing
	// waits in goes after them: that import is over, not stuck.
	for i := range h.Sessions {
		for _, s := range h.Sessions[i].Streams {
			p.must(os.Remove(s.Path))
		}
	}
	if after := h.Progress(nil); after.Archived != 3 || after.Left != 3 {
		t.Errorf("without the transcripts the progress is %+v", after)
	}
}

// TestASessionThatWentOn: of a transcript the first part is of before init. It is
// brought in before the session goes on, or afterwards: each line comes once.
func TestASessionThatWentOn(t *testing.T) {
	for name, importFirst := range map[string]bool{"imported first": true, "imported later": false} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			p.put(p.file(1), p.line(1, "old", p.clock.Now(), nil))
			p.init()
			live := func() []string {
				p.put(p.file(1), p.line(1, "new", p.clock.Now(), nil))
				p.must(note.Write(p.home, note.Note{Event: eventSessionEnd, Session: id(1), Transcript: p.file(1), Cwd: p.cwd, Entrypoint: "cli", At: p.clock.Now()}))
				p.loop.takeNotes(t.Context())
				for range 3 {
					for _, id := range p.loop.agenda.due(p.clock.Now().Add(time.Minute)) {
						p.loop.step(t.Context(), id)
					}
				}
				return p.taken(false)
			}
			brought := func() []string {
				p.agree()
				return p.bring()
			}
			var old, now []string
			if importFirst {
				old = brought()
				if s := p.state(1); !s.Ended || s.Transcript != "" {
					t.Errorf("what was only imported has not ended, or is read: %+v", s)
				}
				now = live()
			} else {
				now = live()
				old = brought()
			}
			if diff := cmp.Diff([][]string{{"old"}, {"new"}}, [][]string{old, now}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if importFirst && len(p.withheld) > 0 {
				t.Errorf("what was imported is called withheld: %q", p.withheld)
			}
			if again := append(brought(), live()...); !slices.Equal(again, []string{"new"}) {
				t.Errorf("later came %q", again)
			}
			if _, chosen := p.survey(p.projects); len(chosen) != 0 {
				t.Errorf("something is left: %+v", chosen[0])
			}
		})
	}
}

func (p *past) state(n int) spool.State {
	p.tb.Helper()
	s, ok := p.loop.spool.Session(id(n))
	if !ok {
		p.tb.Fatalf("session %d is not known", n)
	}
	return s.State()
}

// TestOfCopiesOneIsImported: a fork repeats its origin, and says so nowhere.
func TestOfCopiesOneIsImported(t *testing.T) {
	p := newPast(t)
	at := p.clock.Now()
	p.put(p.file(1), p.line(1, "a", at, nil), p.line(1, "b", at, nil))
	p.put(p.file(2), p.line(2, "a", at, nil), p.line(2, "b", at, nil), p.line(2, "c", at, nil))
	p.init()
	p.want = func(one *Past) bool { return one.ID == id(2) }
	_, chosen := p.survey(p.projects)
	if len(chosen) != 1 || chosen[0].Records != 3 {
		t.Errorf("of the fork alone the survey says %+v", chosen)
	}
	p.want = func(*Past) bool { return true }
	_, chosen = p.survey(p.projects)
	if len(chosen) != 2 || chosen[0].Records != 2 || chosen[1].Records != 1 || chosen[1].Withheld[read.ReasonInherited] != 2 {
		t.Errorf("of both the survey says %+v and %+v", chosen[0], chosen[1])
	}
	p.want = func(one *Past) bool { return one.ID == id(1) }
	p.agree()
	if got := p.bring(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("of the origin came %q", got)
	}
	p.want = func(*Past) bool { return true }
	p.agree()
	if got := p.bring(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("of the fork came %q", got)
	}
}

// TestOfCopiesOneIsImportedOverSeveralRuns: what an earlier run of the command
// decided about the copies of a session holds in a later one, which looks at
// other sessions.
func TestOfCopiesOneIsImportedOverSeveralRuns(t *testing.T) {
	origin, fork := id(1), id(2)
	for name, tt := range map[string]struct {
		reason string
		first  []string // asked for
		bring  bool     // the daemon comes to it before the second run
		then   func(p *past)
		second []string
		want   []string // brought in by the second run
	}{
		"the origin, then the fork": {
			reason: "what was sent is not sent again, though nobody looks at the origin",
			first:  []string{origin}, bring: true, second: []string{fork}, want: []string{"c"},
		},
		"the origin waits when the fork is asked for": {
			reason: "both come in, and of the copies one",
			first:  []string{origin}, second: []string{fork}, want: []string{"c", "a", "b"},
		},
		"the fork, then the origin": {
			reason: "the fork was alone, and has sent what it has of the origin",
			first:  []string{fork}, bring: true, second: []string{origin}, want: nil,
		},
		"the fork, then all": {
			reason: "the same, and the fork is looked at",
			first:  []string{fork}, bring: true, second: nil, want: nil,
		},
		"the origin was given up": {
			reason: "the fork left its lines to it, so they are still to be sent",
			first:  nil, bring: true, then: func(p *past) {
				p.must(DropHistory(p.home))
				delete(p.loop.active, origin)
			}, second: []string{origin}, want: []string{"a", "b"},
		},
		"the origin is another file": {
			reason: "what its cursor has read is not what lies there now",
			first:  []string{origin}, bring: true, then: func(p *past) {
				p.must(os.WriteFile(p.file(1), []byte(p.line(1, "x", p.clock.Now(), nil)+p.line(1, "c", p.clock.Now(), nil)), 0o600))
			}, second: []string{fork}, want: []string{"a", "b", "c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			at := p.clock.Now()
			p.put(p.file(1), p.line(1, "a", at, nil), p.line(1, "b", at, nil))
			p.put(p.file(2), p.line(2, "a", at, nil), p.line(2, "b", at, nil), p.line(2, "c", at, nil))
			p.init()
			if len(tt.first) == 0 {
				p.loop.active[origin] = p.clock.Now() // somebody works in it, so it waits
			}
			p.asked = tt.first
			p.agree()
			if tt.bring {
				p.bring()
			}
			if tt.then != nil {
				tt.then(p)
			}
			p.asked = tt.second
			p.agree()
			if diff := cmp.Diff(tt.want, p.bring()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// TestHistoryOfAnotherPlace: of files that were not there at init only the times
// tell.
func TestHistoryOfAnotherPlace(t *testing.T) {
	p := newPast(t)
	before := p.clock.Now()
	p.init()
	elsewhere := filepath.Join(filepath.Dir(p.projects), "backup")
	p.put(filepath.Join(elsewhere, "-tide", id(1)+".jsonl"),
		`{"type":"summary","summary":"of whatever","leafUuid":"a","sessionId":"`+id(1)+`"}`+"\n",
		p.line(1, "a", before, nil), p.line(1, "b", before.Add(-time.Hour), nil), p.line(1, "c", p.clock.Now(), nil), p.line(1, "d", before, nil))
	p.put(filepath.Join(elsewhere, "-tide", id(2)+".jsonl"), p.line(2, "e", p.clock.Now(), nil))
	all, chosen := p.survey(elsewhere)
	if len(chosen) != 1 || len(all) != 2 || all[1].State != HistorySince {
		t.Fatalf("the survey says %+v and %+v", all[0], all[1])
	}
	h := History{At: p.clock.Now(), Sessions: []HistorySession{chosen[0].Plan()}}
	p.must(SaveHistory(p.home, p.config, h))
	if got := p.bring(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("brought in were %q, want what was said before init, up to the first that was not", got)
	}
}
