package consent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var evening = time.Date(2026, 5, 4, 18, 0, 0, 0, time.UTC)

// TestSilencesAreKept: what a user said is on the disk, and what ended by the
// clock is measured by whoever comes next.
func TestSilencesAreKept(t *testing.T) {
	home := t.TempDir()
	sizes := map[string]int64{"/p/a.jsonl": 10, "/p/b.jsonl": 5}
	measured := 0
	measure := func(projects string) (map[string]int64, error) {
		measured++
		if projects != "/p" {
			t.Errorf("measured below %q", projects)
		}
		return sizes, nil
	}
	update := func(now time.Time, change func(*Silences)) {
		t.Helper()
		err := UpdateSilences(t.Context(), home, now, measure, func(s *Silences) error {
			change(s)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	update(evening, func(s *Silences) { s.Begin(ReasonPaused, "", "/p", evening, evening.Add(time.Hour), sizes) })
	update(evening, func(s *Silences) { s.Begin(ReasonPrivate, "a", "/p", evening, time.Time{}, sizes) })
	sizes = map[string]int64{"/moved/a.jsonl": 30, "/p/b.jsonl": 5, "/p/new.jsonl": 7, "/p/c.jsonl": 0}
	update(evening.Add(59*time.Minute), func(*Silences) {})
	if measured != 0 {
		t.Error("measured before the end")
	}
	update(evening.Add(2*time.Hour), func(*Silences) {})
	sizes["/p/new.jsonl"], sizes["/p/b.jsonl"] = 9, 2
	update(evening.Add(3*time.Hour), func(s *Silences) {
		if n := s.End(ReasonPrivate, "a", evening.Add(3*time.Hour), sizes); n != 1 {
			t.Errorf("%d private silences ended", n)
		}
		if n := s.End(ReasonPaused, "", evening.Add(3*time.Hour), sizes); n != 0 {
			t.Errorf("%d pauses ended a second time", n)
		}
	})
	got, err := LoadSilences(home)
	if err != nil {
		t.Fatal(err)
	}
	want := []Silence{
		{
			Reason: ReasonPaused, Since: evening, Until: evening.Add(time.Hour), ByClock: true, Projects: "/p", Measured: true,
			Ranges: map[string]Range{"/moved/a.jsonl": {10, 30}, "/p/new.jsonl": {0, 7}},
		},
		{
			Reason: ReasonPrivate, Session: "a", Since: evening, Until: evening.Add(3 * time.Hour), Projects: "/p", Measured: true,
			Ranges: map[string]Range{"/moved/a.jsonl": {10, 30}},
		},
	}
	if diff := cmp.Diff(want, got.List); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for path, wanted := range map[string]struct {
		bytes Range
		ok    bool
	}{"/elsewhere/a.jsonl": {Range{10, 30}, true}, "/p/b.jsonl": {Range{}, false}, "/p/new.jsonl": {Range{0, 7}, true}} {
		if bytes, open, ok := got.List[0].Bytes(path); bytes != wanted.bytes || open || ok != wanted.ok {
			t.Errorf("%s: %v, open %v, known %v, want %v", path, bytes, open, ok, wanted)
		}
	}
	later := evening.Add(heedSilence + 2*time.Hour)
	update(later, func(*Silences) {})
	if got, err = LoadSilences(home); err != nil || len(got.List) != 2 {
		t.Errorf("long after the pause %d silences are kept (%v), want both: history may be brought in at any time", len(got.List), err)
	}
	if !got.List[0].Old(later) || got.List[1].Old(later) {
		t.Errorf("of a pause and a later private time, old are %v and %v", got.List[0].Old(later), got.List[1].Old(later))
	}
}

// TestSilencesThatCannotBeRead: without them nothing may be heard.
func TestSilencesThatCannotBeRead(t *testing.T) {
	for name, text := range map[string]string{"broken": "{", "newer": `{"version":2}`, "empty": ""} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, silenceFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadSilences(home)
		if diff := cmp.Diff(ErrSilences, err, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		err = UpdateSilences(t.Context(), home, evening, nil, func(*Silences) error { return nil })
		if diff := cmp.Diff(ErrSilences, err, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s, changed (-want +got):\n%s", name, diff)
		}
		if data, err := os.ReadFile(filepath.Join(home, silenceFile)); err != nil || string(data) != text {
			t.Errorf("%s: it was replaced", name)
		}
	}
}

// TestAnEndThatCannotBeMeasuredIsNone: the silence goes on.
func TestAnEndThatCannotBeMeasuredIsNone(t *testing.T) {
	home := t.TempDir()
	failing := func(string) (map[string]int64, error) { return nil, errors.New("no such folder") }
	err := UpdateSilences(t.Context(), home, evening, failing, func(s *Silences) error {
		s.Begin(ReasonPaused, "", "/p", evening, evening.Add(time.Minute), nil)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := UpdateSilences(context.Background(), home, evening.Add(time.Hour), failing, func(*Silences) error { return nil }); err == nil {
		t.Error("an end was taken that nobody measured")
	}
	got, err := LoadSilences(home)
	if err != nil || !got.Due(evening.Add(time.Hour)) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestManyPrivateSessions: each keeps what can be its own, so that hundreds of them
// can be read again; and they are forgotten when nothing is left to keep private.
func TestManyPrivateSessions(t *testing.T) {
	const n = 400
	home := t.TempDir()
	sizes := map[string]int64{"/p/-old/agent-0123abcd.jsonl": 9}
	name := func(i int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", i) }
	for i := range n {
		sizes["/p/-tide/"+name(i)+".jsonl"] = 10
		sizes["/p/-tide/"+name(i)+"/subagents/agent-1.jsonl"] = 5
	}
	measure := func(string) (map[string]int64, error) { return sizes, nil }
	update := func(now time.Time, change func(*Silences)) {
		t.Helper()
		err := UpdateSilences(t.Context(), home, now, measure, func(s *Silences) error {
			change(s)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	update(evening, func(s *Silences) {
		for i := range n {
			s.Begin(ReasonPrivate, name(i), "/p", evening, time.Time{}, sizes)
		}
	})
	got, err := LoadSilences(home)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{
		"/p/-tide/" + name(7) + ".jsonl": 10, "/p/-tide/" + name(7) + "/subagents/agent-1.jsonl": 5, "/p/-old/agent-0123abcd.jsonl": 9,
	}
	if diff := cmp.Diff(want, got.List[7].Sizes); diff != "" {
		t.Errorf("sizes of one session (-want +got):\n%s", diff)
	}
	for path := range sizes {
		sizes[path] += 100
	}
	update(evening.Add(time.Hour), func(s *Silences) { s.End(ReasonPrivate, name(7), evening.Add(time.Hour), sizes) })
	if got, err = LoadSilences(home); err != nil {
		t.Fatal(err)
	}
	ranges := map[string]Range{
		"/p/-tide/" + name(7) + ".jsonl": {10, 110}, "/p/-tide/" + name(7) + "/subagents/agent-1.jsonl": {5, 105}, "/p/-old/agent-0123abcd.jsonl": {9, 109},
	}
	if diff := cmp.Diff(ranges, got.List[7].Ranges); diff != "" {
		t.Errorf("ranges of one session (-want +got):\n%s", diff)
	}

	left := "/p/-tide/" + name(3) + "/subagents/agent-1.jsonl"
	sizes = map[string]int64{left: 5}
	day := 24 * time.Hour
	for _, then := range []struct {
		after time.Duration
		want  int
	}{{100 * day, n}, {189 * day, n}, {191 * day, 2}} {
		update(evening.Add(then.after), func(*Silences) {})
		if got, err = LoadSilences(home); err != nil || len(got.List) != then.want {
			t.Errorf("after %v %d are kept (%v), want %d", then.after, len(got.List), err, then.want)
		}
	}
	if len(got.List) != 2 || got.List[0].Session != name(3) {
		t.Errorf("of a session with a transcript nothing is kept: %+v", got.List)
	}
}

// TestATranscriptThatComesBack: its session is as private as it was.
func TestATranscriptThatComesBack(t *testing.T) {
	home := t.TempDir()
	var sizes map[string]int64
	measure := func(string) (map[string]int64, error) { return sizes, nil }
	day := 24 * time.Hour
	for _, now := range []time.Duration{0, 100 * day, 150 * day, 195 * day} {
		sizes = nil
		if now == 150*day {
			sizes = map[string]int64{"/p/x/s.jsonl": 1}
		}
		err := UpdateSilences(t.Context(), home, evening.Add(now), measure, func(s *Silences) error {
			if now == 0 {
				s.Begin(ReasonPrivate, "s", "/p", evening, time.Time{}, nil)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := LoadSilences(home); err != nil || len(got.List) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestMoreSilencesThanAreRead: what would stop all reading is refused, and what was
// said before holds.
func TestMoreSilencesThanAreRead(t *testing.T) {
	home := t.TempDir()
	begin := func(n int) error {
		return UpdateSilences(t.Context(), home, evening, nil, func(s *Silences) error {
			for i := range n {
				s.Begin(ReasonPrivate, fmt.Sprint("s", i), strings.Repeat("p", 1<<20), evening, time.Time{}, nil)
			}
			return nil
		})
	}
	if err := begin(2); err != nil {
		t.Fatal(err)
	}
	if err := begin(maxSilences >> 20); !errors.Is(err, errTooMany) {
		t.Errorf("%v, want %v", err, errTooMany)
	}
	if got, err := LoadSilences(home); err != nil || len(got.List) != 2 {
		t.Errorf("%d silences, %v", len(got.List), err)
	}
}
