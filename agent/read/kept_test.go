package read

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

var morning = time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC)

// said is what a person said so many minutes after eight.
func said(n, minute int, cwd string) string {
	at := morning.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339)
	return strings.Replace(user(n, cwd), `"cwd"`, `"timestamp":"`+at+`","cwd"`, 1)
}

const title = `{"type":"ai-title","sessionId":"` + session + `","title":"words"}`

// TestAFileThatWasReplaced: a transcript is cut, or written anew. What was not to
// be heard of the old file is not heard of the new one.
func TestAFileThatWasReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		before []string // the file, of which the first lines lie before init
		lines  int      // how many
		after  []string
		hears  bool // /late is included before the file is read again
		want   []string
	}{
		"cut before init": {
			"a line is cut out, and all else moves",
			[]string{said(1, 0, "/tide"), said(2, 1, "/tide"), said(3, 70, "/tide")},
			2,
			[]string{said(2, 1, "/tide"), said(3, 70, "/tide"), said(4, 71, "/tide")},
			false,
			[]string{"u3", "u4"},
		},
		"titles": {
			"a record without a time is of the time of what is before it",
			[]string{title, said(1, 0, "/tide"), said(3, 70, "/tide")},
			2,
			[]string{title, said(1, 0, "/tide"), title, said(4, 71, "/tide"), title},
			false,
			[]string{"u4", ""},
		},
		"included since": {
			"what was withheld in the morning is not heard in the afternoon",
			[]string{said(1, 61, "/late"), said(5, 61, "/late"), said(2, 62, "/tide")},
			0,
			[]string{said(5, 61, "/late"), said(2, 62, "/tide"), said(3, 63, "/late")},
			true,
			[]string{"u2", "u3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t)
			r.Decide = func(cwd, entrypoint string) Verdict {
				if tt.hears && cwd == "/late" {
					cwd = "/tide"
				}
				return decide(cwd, entrypoint)
			}
			src := transcriptAt(t, t.TempDir(), tt.before...)
			src.Init, src.Baseline = morning.Add(time.Hour), int64(len(join(tt.before[:tt.lines])))
			hears := tt.hears
			tt.hears = false
			first := must(t, r, src, Cursor{}, Want{})
			if got := uuids(t, first); len(got) != 1 {
				t.Fatalf("%s: at first %v is heard", tt.reason, got)
			}
			receipt := first.Withheld
			src.Earlier = func() ([]Kept, error) {
				var kept []Kept
				for _, w := range receipt {
					kept = append(kept, Kept{Withheld: w})
				}
				return kept, nil
			}
			write(t, src.Path, join(tt.after))
			tt.hears = hears
			again := must(t, r, src, first.Cursor, Want{})
			if diff := cmp.Diff(tt.want, uuids(t, again)); diff != "" {
				t.Errorf("%s: of the new file is heard (-want +got):\n%s", tt.reason, diff)
			}
			// And of the one after it, when nothing has left in between.
			write(t, src.Path, join(tt.after[1:]))
			src.Earlier = nil
			third := must(t, r, src, again.Cursor, Want{})
			for _, id := range uuids(t, third) {
				if strings.Contains(fmt.Sprint(uuids(t, again)), id) {
					continue
				}
				t.Errorf("%s: of a third file %s is heard", tt.reason, id)
			}
		})
	}
}

// TestAFileThatBeganAfterInit is heard whatever the clock said, also when it is
// cut and read again.
func TestAFileThatBeganAfterInit(t *testing.T) {
	r := newReader(t)
	src := transcriptAt(t, t.TempDir(), said(1, 0, "/tide"), title)
	src.Init = morning.Add(time.Hour)
	first := must(t, r, src, Cursor{}, Want{})
	if diff := cmp.Diff([]string{"u1", ""}, uuids(t, first)); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
	write(t, src.Path, join([]string{said(3, 1, "/tide"), title}))
	again := must(t, r, src, first.Cursor, Want{})
	if diff := cmp.Diff([]string{"u3", ""}, uuids(t, again)); diff != "" {
		t.Errorf("heard of the new file (-want +got):\n%s", diff)
	}
}

// TestCopiesOlderThanInit: a fork that is new here and tells of before.
func TestCopiesOlderThanInit(t *testing.T) {
	r := newReader(t)
	copied := strings.Replace(said(1, 0, "/tide"), `{`, `{"forkedFrom":{"sessionId":"0e000000-0000-4000-8000-000000000001","messageUuid":"u1"},`, 1)
	src := transcriptAt(t, t.TempDir(), copied, said(2, 61, "/tide"), title)
	src.Init = morning.Add(time.Hour)
	batch := must(t, r, src, Cursor{}, Want{})
	if diff := cmp.Diff([]string{"u2", ""}, uuids(t, batch)); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
	if w := batch.Withheld; len(w) != 1 || w[0].Reason != ReasonBeforeInit || !w[0].Since.Equal(morning) || !w[0].Until.Equal(morning) {
		t.Errorf("withheld is %+v", w)
	}
}

// TestTheBeginningOfAFileThatWasThereAtInit gives no time, and the file was
// replaced: nobody knows what of it is older.
func TestTheBeginningOfAFileThatWasThereAtInit(t *testing.T) {
	r := newReader(t)
	src := transcriptAt(t, t.TempDir(), title, user(1, "/tide"), said(2, 61, "/tide"), title)
	src.Init, src.Baseline = morning.Add(time.Hour), 1
	batch := must(t, r, src, Cursor{Generation: 1}, Want{})
	if diff := cmp.Diff([]string{"u2", ""}, uuids(t, batch)); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
}

// TestWhatWasWithheldCannotBeLearned: without it nothing of a new file is read.
func TestWhatWasWithheldCannotBeLearned(t *testing.T) {
	r := newReader(t)
	src := transcriptAt(t, t.TempDir(), said(1, 0, "/tide"), said(2, 1, "/tide"))
	first := must(t, r, src, Cursor{}, Want{})
	write(t, src.Path, join([]string{said(2, 1, "/tide")}))
	broken := errors.New("broken")
	src.Earlier = func() ([]Kept, error) { return nil, broken }
	if _, err := r.Next(t.Context(), src, first.Cursor, Want{}); !errors.Is(err, broken) {
		t.Errorf("Next: %v, want %v", err, broken)
	}
}

// TestKeptIsBounded: however much a talk jumped, what was withheld stays so.
func TestKeptIsBounded(t *testing.T) {
	var all []Kept
	for i := range 3*maxKept + 1 {
		at := morning.Add(time.Duration(2*i) * time.Second)
		all = append(all, Kept{Withheld: Withheld{Range: segment.Range{FromOffset: int64(20 * i), ToOffset: int64(20*i + 10), Reason: "excluded"}, Since: at, Until: at}})
	}
	for _, generation := range []int64{0, 1} {
		kept := merge(all, generation)
		if len(kept) > maxKept {
			t.Fatalf("generation %d: %d ranges are kept", generation, len(kept))
		}
		for i := range all {
			line, covered := transcript.Line{Offset: all[i].FromOffset, Length: 10}, false
			for k := range kept {
				covered = covered || kept[k].covers(line, all[i].Since, generation)
			}
			if !covered {
				t.Fatalf("generation %d: range %d is heard", generation, i)
			}
		}
		if diff := cmp.Diff(kept, merge(kept, generation)); diff != "" {
			t.Errorf("generation %d: merged again it is another (-want +got):\n%s", generation, diff)
		}
	}
}

// TestStartedOver: a stream is read again from its beginning, as the same file and
// as another one.
func TestStartedOver(t *testing.T) {
	r := newReader(t)
	src := transcriptAt(t, t.TempDir(), said(1, 61, "/late"), said(2, 62, "/tide"), title, said(3, 63, "/tide"))
	first := must(t, r, src, Cursor{}, Want{})
	r.Decide = func(_, entrypoint string) Verdict { return decide("/tide", entrypoint) }
	var kept []Kept
	for _, w := range first.Withheld {
		kept = append(kept, Kept{Withheld: w})
	}
	for name, spoil := range map[string]func(){
		"the same file": func() {},
		"another file": func() {
			write(t, src.Path, join([]string{title, title, title, said(1, 61, "/late"), said(3, 63, "/tide")}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			spoil()
			cur := StartOver(first.Cursor, kept)
			if cur.Offset != 0 || cur.NextIndex != 0 {
				t.Fatalf("it does not start over: %+v", cur)
			}
			for _, id := range uuids(t, must(t, r, src, cur, Want{})) {
				if id == "u1" {
					t.Error("what was withheld is heard")
				}
			}
		})
	}
}
