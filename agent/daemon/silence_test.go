package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
)

// evening is a workstation whose user says now and then that nothing may be
// heard, on a clock of the test's.
type evening struct {
	tb       testing.TB
	random   *rand.Rand
	clock    *clocktesting.FakeClock
	home     string
	projects string
	cwd      string
	config   note.Config
	redactor *redact.Redactor
	loop     *loop
	talks    []*silentTalk
	paused   time.Time // until when; zero: not, far: until resume
	got      map[string]int
	of       map[string]*silentTalk // by line
	n        int
	epoch    int // counts what the user said
}

// silentTalk is one session.
type silentTalk struct {
	id      string
	off     bool // LETTA_MODE=off
	private bool
	streams []*silentStream
}

type silentStream struct {
	path string
	torn []byte // what is still to be written of the last line
	id   string // of that line
	keep bool   // as the line began

	epoch int  // when it began
	late  bool // it gives no time, and the end by the clock was not noticed yet
	at    time.Time
}

// noTrouble takes what is told and forgets it.
type noTrouble struct{}

func (noTrouble) Set(string, string) {}

func newEvening(tb testing.TB, random *rand.Rand) *evening {
	tb.Helper()
	dir := tb.TempDir()
	e := &evening{
		tb: tb, random: random, clock: clocktesting.NewFakeClock(time.Date(2026, 5, 4, 18, 0, 0, 0, time.UTC)),
		home: filepath.Join(dir, "state"), projects: filepath.Join(dir, "projects"), cwd: filepath.Join(dir, "tide"), got: map[string]int{}, of: map[string]*silentTalk{},
	}
	for _, folder := range []string{e.home, filepath.Join(e.projects, "-tide"), filepath.Join(e.cwd, ".git")} {
		e.must(os.MkdirAll(folder, 0o700))
	}
	e.must(os.WriteFile(filepath.Join(e.cwd, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
	e.must(os.WriteFile(filepath.Join(e.cwd, ".git", "config"), []byte("[remote \"origin\"]\n\turl = https://git.example.com/alpha/tide.git\n"), 0o600))
	e.must(durable.WriteFile(filepath.Join(e.home, note.PolicyFile), []byte(`{"version":1,"include":["git.example.com/alpha/*"],"recall":true,"maxCharacters":4000}`)))
	e.config = note.Config{Owner: "ada", Workstation: "wks-a", Namespace: "alpha", Memory: "main", ConsentedAt: e.clock.Now().Add(-time.Hour)}
	e.must(note.SaveConfig(e.home, e.config))
	_, err := WriteBaseline(e.home, e.projects)
	e.must(err)
	e.redactor, err = redact.New()
	e.must(err)
	e.restart()
	return e
}

func (e *evening) must(err error) {
	e.tb.Helper()
	if err != nil {
		e.tb.Fatal(err)
	}
}

// restart is a new daemon with what the old one left on the disk.
func (e *evening) restart() {
	e.tb.Helper()
	queue, err := spool.Open(spool.Options{Dir: filepath.Join(e.home, SessionsDir), Owner: e.config.Owner, Workstation: e.config.Workstation})
	e.must(err)
	before, err := readBaseline(e.home)
	e.must(err)
	view := status.OpenView(e.home)
	config, err := note.LoadConfig(e.home)
	e.must(err)
	settings := &settings{home: e.home, config: config}
	rules := newConsent(settings, view)
	e.loop = &loop{
		home: e.home, config: e.config, settings: settings, clock: e.clock, timing: DefaultTiming, spool: queue, view: view, baseline: before,
		trouble: noTrouble{}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), spooled: func() {}, redactor: func(places map[string]spool.Folder) (*redact.Redactor, error) { return rules.begin(e.redactor, places) }, sight: rules.look,
		reader: &read.Reader{Redactor: e.redactor, Clock: e.clock, Decide: rules.decide, Policy: rules.policy},
	}
	e.loop.begin()
}

// silent says whether nothing may be heard of a session now.
func (e *evening) silent(k *silentTalk) bool {
	return k.off || k.private || e.clock.Now().Before(e.paused)
}

// hook is the hook of an event, as agent/hook has it.
func (e *evening) hook(k *silentTalk, name string) {
	e.tb.Helper()
	path, now := k.streams[0].path, e.clock.Now()
	if k.off {
		if !note.IsOff(e.home, k.id) {
			e.must(note.BeginOff(e.home, k.id, path, now))
		}
		return
	}
	e.must(note.EndOff(e.home, k.id, path, now))
	e.must(note.Write(e.home, note.Note{Event: name, Session: k.id, Transcript: path, Cwd: e.cwd, Entrypoint: "cli", At: now}))
}

// begin starts a session.
func (e *evening) begin() {
	id := fmt.Sprintf("%08d-0000-4000-8000-000000000000", len(e.talks)+1)
	k := &silentTalk{id: id, streams: []*silentStream{{path: filepath.Join(e.projects, "-tide", id+".jsonl")}}}
	e.talks = append(e.talks, k)
	e.hook(k, eventSessionStart)
}

// agent starts a subagent.
func (e *evening) agent(k *silentTalk) {
	k.streams = append(k.streams, &silentStream{
		path: filepath.Join(e.projects, "-tide", k.id, "subagents", fmt.Sprintf("agent-%s%d.jsonl", k.id[:8], len(k.streams))),
	})
}

// write appends a line, or a part of one, or the rest of one.
func (e *evening) write(k *silentTalk, s *silentStream) {
	e.tb.Helper()
	if s.torn == nil {
		e.n++
		s.id, s.keep = fmt.Sprintf("line-%06d", e.n), !e.silent(k)
		e.of[s.id] = k
		record := map[string]any{
			"type": "user", "uuid": s.id, "sessionId": k.id, "cwd": e.cwd, "entrypoint": "cli", "isSidechain": s != k.streams[0],
			"message": map[string]any{"role": "user", "content": "words of " + s.id},
		}
		s.epoch, s.at = e.epoch, e.clock.Now()
		// Some records have none, in a session's own stream.
		known, err := consent.LoadSilences(e.home)
		e.must(err)
		s.late = known.Due(e.clock.Now())
		if s != k.streams[0] || e.random.IntN(8) > 0 {
			s.late = false
			record["timestamp"] = e.clock.Now().Format(time.RFC3339Nano)
		}
		line, err := json.Marshal(record)
		e.must(err)
		s.torn = append(line, '\n')
	}
	n := len(s.torn)
	if e.random.IntN(4) == 0 {
		n = 1 + e.random.IntN(n)
	}
	e.must(os.MkdirAll(filepath.Dir(s.path), 0o700))
	file, err := os.OpenFile(s.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	e.must(err)
	_, err = file.Write(s.torn[:n])
	e.must(err)
	e.must(file.Close())
	if s.torn = s.torn[n:]; len(s.torn) > 0 {
		return
	}
	s.torn = nil
	switch {
	case s.epoch != e.epoch, s.at.Before(e.paused) != e.clock.Now().Before(e.paused):
		e.got[s.id] = either // half of it is of a silence
	case s.keep && s.late:
		e.got[s.id] = either
	case s.keep:
		e.got[s.id]-- // one is owed
	default:
		e.got[s.id] = banned
	}
}

// What may become of a line.
const (
	either = 1000
	banned = -1000
)

// say is what the user says to all sessions, or to one, through the command
// line.
func (e *evening) say(change func(*consent.Silences, map[string]int64)) {
	e.tb.Helper()
	e.epoch++
	sizes, err := Measure(e.home, e.projects)
	e.must(err)
	e.must(consent.UpdateSilences(e.tb.Context(), e.home, e.clock.Now(), e.loop.measure, func(s *consent.Silences) error {
		change(s, sizes)
		return nil
	}))
}

// read lets the daemon work until it has nothing to do, and takes what it made.
func (e *evening) read() {
	e.tb.Helper()
	e.loop.takeNotes(e.tb.Context())
	e.loop.sweep(true)
	for range 1000 {
		ids := e.loop.agenda.due(e.clock.Now().Add(time.Minute))
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			e.loop.step(e.tb.Context(), id)
		}
	}
	for _, session := range e.loop.spool.Sessions() {
		state := session.State()
		for _, g := range state.Segments {
			packed, err := session.Read(g.Seq)
			e.must(err)
			raw, err := segment.Unpack(packed)
			e.must(err)
			_, lines, err := segment.Decode(raw)
			e.must(err)
			for _, line := range lines {
				var record struct{ UUID string }
				e.must(json.Unmarshal(line, &record))
				e.got[record.UUID]++
				if strings.Count(string(line), "words of ") != 1 {
					e.tb.Errorf("line %s: %s", record.UUID, line)
				}
			}
		}
		e.must(session.Drop(state.Head.Segments))
	}
}

// act does one random thing.
func (e *evening) act() {
	e.tb.Helper()
	e.clock.Step(time.Duration(1+e.random.IntN(20_000)) * time.Millisecond)
	if len(e.talks) == 0 || len(e.talks) < 4 && e.random.IntN(60) == 0 {
		e.begin()
		return
	}
	k := e.talks[e.random.IntN(len(e.talks))]
	switch n := e.random.IntN(100); {
	case n < 50:
		s := k.streams[e.random.IntN(len(k.streams))]
		if s == k.streams[0] {
			e.hook(k, eventPrompt)
		}
		e.write(k, s)
	case n < 53 && len(k.streams) < 4:
		e.agent(k)
	case n < 60:
		e.hook(k, eventStop)
	case n < 80:
		e.read()
	case n < 82:
		e.restart()
	case n < 86:
		e.say(func(s *consent.Silences, sizes map[string]int64) {
			s.Begin(consent.ReasonPaused, "", e.projects, e.clock.Now(), time.Time{}, sizes)
		})
		e.paused = e.clock.Now().Add(1000 * time.Hour)
	case n < 89:
		until := e.clock.Now().Add(time.Duration(e.random.IntN(120)) * time.Second)
		e.say(func(s *consent.Silences, sizes map[string]int64) {
			s.Begin(consent.ReasonPaused, "", e.projects, e.clock.Now(), until, sizes)
		})
		e.paused = until
	case n < 94:
		e.say(func(s *consent.Silences, sizes map[string]int64) {
			s.End(consent.ReasonPaused, "", e.clock.Now(), sizes)
		})
		e.paused = time.Time{}
	case n < 96:
		e.say(func(s *consent.Silences, sizes map[string]int64) {
			if k.private {
				s.End(consent.ReasonPrivate, k.id, e.clock.Now(), sizes)
			} else {
				s.Begin(consent.ReasonPrivate, k.id, e.projects, e.clock.Now(), time.Time{}, sizes)
			}
		})
		k.private = !k.private
	default: // the session is resumed with another environment
		k.off = !k.off
		e.epoch++
		e.hook(k, eventSessionStart)
	}
}

// end lets everything come to its end and says what came wrongly.
func (e *evening) end() (wrong []string) {
	e.tb.Helper()
	for _, k := range e.talks {
		for _, s := range k.streams {
			for s.torn != nil {
				e.write(k, s)
			}
		}
		if k.off { // a transcript of which no hook speaks is not read
			k.off = false
			e.hook(k, eventSessionStart)
		}
		e.hook(k, eventSessionEnd)
	}
	e.read()
	e.restart()
	e.read()
	for id, n := range e.got {
		switch {
		case n == 0, n == banned, n == either, n == either+1:
		case n < -500:
			wrong = append(wrong, id+" is of a silence and was heard")
		default:
			wrong = append(wrong, fmt.Sprintf("%s was heard %d times, want once", id, n%either+1))
		}
	}
	return wrong
}

// TestNothingOfASilenceIsRead: whenever the user pauses, makes a session
// private or switches it off, and whenever the daemon reads or dies: nothing of
// those minutes is in any segment, and everything else is, once.
func TestNothingOfASilenceIsRead(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			e := newEvening(t, rand.New(rand.NewPCG(seed, 7)))
			for range 250 {
				e.act()
			}
			for _, wrong := range e.end() {
				t.Error(wrong)
			}
		})
	}
}

// TestThePersonIsToldAtTheFirstPrompt: the line waits when a session has begun,
// before there is a transcript, and says what is so.
func TestThePersonIsToldAtTheFirstPrompt(t *testing.T) {
	recorded := "undersong: this session is recorded for team alpha, memory main (undersong status)"
	for name, test := range map[string]struct {
		reason string
		before func(e *evening)
		note   func(n *note.Note)
		want   []string
	}{
		"recorded": {reason: "the team hears this project", want: []string{recorded}},
		"headless": {reason: "there is nobody to tell", note: func(n *note.Note) { n.Entrypoint = "sdk-cli" }},
		"elsewhere": {reason: "undersong has nothing to say there", note: func(n *note.Note) {
			n.Cwd = filepath.Dir(n.Cwd)
		}},
		"paused": {reason: "the person may have forgotten", before: func(e *evening) {
			e.say(func(s *consent.Silences, sizes map[string]int64) {
				s.Begin(consent.ReasonPaused, "", e.projects, e.clock.Now(), time.Time{}, sizes)
			})
		}, want: []string{"undersong: paused, this session is not recorded (undersong resume)"}},
		"private": {reason: "resumed", before: func(e *evening) {
			e.say(func(s *consent.Silences, sizes map[string]int64) {
				s.Begin(consent.ReasonPrivate, "00000001-0000-4000-8000-000000000000", e.projects, e.clock.Now(), time.Time{}, sizes)
			})
		}, want: []string{"undersong: this session is not recorded: it is private (undersong status)"}},
		"another is private": {reason: "not this one", before: func(e *evening) {
			e.say(func(s *consent.Silences, sizes map[string]int64) {
				s.Begin(consent.ReasonPrivate, "other", e.projects, e.clock.Now(), time.Time{}, sizes)
			})
		}, want: []string{recorded}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvening(t, rand.New(rand.NewPCG(1, 1)))
			if test.before != nil {
				test.before(e)
			}
			id := "00000001-0000-4000-8000-000000000000"
			n := note.Note{
				Event: eventSessionStart, Session: id, Transcript: filepath.Join(e.projects, "-tide", id+".jsonl"),
				Cwd: e.cwd, Entrypoint: "cli", At: e.clock.Now(),
			}
			if test.note != nil {
				test.note(&n)
			}
			for range 2 { // once per session
				e.must(note.Write(e.home, n))
				e.read()
			}
			files, err := filepath.Glob(filepath.Join(e.home, "whispers", id, "waiting", "*.json"))
			e.must(err)
			var got []string
			for _, file := range files {
				data, err := os.ReadFile(file)
				e.must(err)
				var w struct{ Notice string }
				e.must(json.Unmarshal(data, &w))
				got = append(got, w.Notice)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

// line writes one line of the first session, in a folder, lets the daemon read
// it, and returns what it made of it; "" when nothing was heard.
func (e *evening) line(cwd, text string) string {
	e.tb.Helper()
	e.append(cwd, text)
	e.hook(e.talks[0], eventStop)
	return e.heard()
}

// append writes one line of the first session.
func (e *evening) append(cwd, text string) {
	e.tb.Helper()
	k := e.talks[0]
	path := k.streams[0].path
	e.must(os.MkdirAll(filepath.Dir(path), 0o700))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	e.must(err)
	_, err = fmt.Fprintf(file, "{\"type\":\"user\",\"uuid\":\"x\",\"sessionId\":%q,\"cwd\":%q,\"message\":{\"content\":%q}}\n", k.id, cwd, text)
	e.must(err)
	e.must(file.Close())
}

// heard lets the daemon read, and returns the lines that it made.
func (e *evening) heard() string {
	e.tb.Helper()
	e.loop.takeNotes(e.tb.Context())
	for range 10 {
		for _, id := range e.loop.agenda.due(e.clock.Now().Add(time.Minute)) {
			e.loop.step(e.tb.Context(), id)
		}
	}
	session, ok := e.loop.spool.Session(e.talks[0].id)
	if !ok {
		return ""
	}
	var all [][]byte
	state := session.State()
	for _, g := range state.Segments {
		packed, err := session.Read(g.Seq)
		e.must(err)
		raw, err := segment.Unpack(packed)
		e.must(err)
		_, lines, err := segment.Decode(raw)
		e.must(err)
		all = append(all, lines...)
	}
	e.must(session.Drop(state.Head.Segments))
	return string(bytes.Join(all, []byte("\n")))
}

// TestARepositoryHidesMore: its own expressions are applied besides ours, from
// the moment on at which the file has them.
func TestARepositoryHidesMore(t *testing.T) {
	e := newEvening(t, rand.New(rand.NewPCG(1, 1)))
	e.begin()
	file := filepath.Join(e.cwd, ".undersong.yaml")
	if got := e.line(e.cwd, "the ship is PROJ-1"); !strings.Contains(got, "PROJ-1") {
		t.Errorf("without a file: %s", got)
	}
	e.must(os.WriteFile(file, []byte("redact: ['PROJ-[0-9]+']\n"), 0o600))
	if got := e.line(e.cwd, "the ship is PROJ-2, the key ghp_0123456789abcdefghijABCDEFGHIJ456789"); strings.Contains(got, "PROJ-2") || strings.Contains(got, "ghp_0") || !strings.Contains(got, "the ship is [redacted:project-1]") {
		t.Errorf("with a file: %s", got)
	}
	e.must(os.WriteFile(file, []byte("redact: ['PROJ-[0-9]+', '(']\n"), 0o600))
	if got := e.line(e.cwd, "the ship is PROJ-3"); got != "" {
		t.Errorf("with a file that cannot be read: %s", got)
	}
}
