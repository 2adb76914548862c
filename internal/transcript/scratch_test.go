package transcript_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// generated makes n records with uuids in chains that are cut, rewound and repeated,
// and calls f for each.
func generated(t *testing.T, n int, f func(transcript.Record)) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	var line bytes.Buffer
	last := "null"
	for i := range n {
		line.Reset()
		id, parent := i, last
		if i > 0 && random.IntN(10) == 0 {
			id = random.IntN(i) // again, or in conflict
		}
		if i > 0 && random.IntN(7) == 0 {
			parent = fmt.Sprintf(`"id-%d"`, random.IntN(i))
		}
		switch random.IntN(5) {
		case 0:
			fmt.Fprintf(&line, `{"type":"user","uuid":"id-%d","parentUuid":%s,"message":{"content":"prompt %d"}}`, id, parent, i%3)
		case 1:
			fmt.Fprintf(&line, `{"type":"system","subtype":"turn_duration","uuid":"id-%d","parentUuid":%s}`, id, parent)
		default:
			fmt.Fprintf(&line, `{"type":"assistant","uuid":"id-%d","parentUuid":%s,"message":{"id":"m%d","usage":{"output_tokens":%d},"content":[{"type":"text","text":"%d"}]}}`, id, parent, id/3, i, i%3)
		}
		if last = fmt.Sprintf(`"id-%d"`, id); random.IntN(n) < 5 {
			last = "null"
		}
		f(parse(t, line.String()))
	}
}

type sets struct {
	known *transcript.Known
	tree  *transcript.Tree
	usage *transcript.Usage
}

func (s sets) err() error { return errors.Join(s.known.Err(), s.tree.Err(), s.usage.Err()) }

func (s sets) close() error { return errors.Join(s.known.Close(), s.tree.Close(), s.usage.Close()) }

func newSets(room transcript.Room) sets {
	return sets{transcript.NewKnown(room), transcript.NewTree(room), transcript.NewUsage(room)}
}

// scratchFiles are a room in a folder.
func scratchFiles(dir string) transcript.Room {
	return func() (transcript.Scratch, error) {
		file, err := os.CreateTemp(dir, "scratch")
		return dropped{file}, err
	}
}

type dropped struct{ *os.File }

func (d dropped) Close() error { return errors.Join(d.File.Close(), os.Remove(d.Name())) }

// pages sets how much of each store is in memory while a test runs.
func pages(t *testing.T, n int) {
	t.Helper()
	before := transcript.SetPages(n)
	t.Cleanup(func() { transcript.SetPages(before) })
}

// TestSetsSayTheSameInARoom: what lies in files is what would be in memory, and
// memory does not grow with it.
func TestSetsSayTheSameInARoom(t *testing.T) {
	dir := t.TempDir()
	const records = 30_000
	pages(t, 8)
	in, out := newSets(nil), newSets(scratchFiles(dir))
	generated(t, records, func(r transcript.Record) {
		if want, got := in.known.Add(r), out.known.Add(r); want != got {
			t.Fatalf("%s is %d, want %d", r.UUID, got, want)
		}
		for _, s := range []sets{in, out} {
			s.tree.Fold(r, "")
			s.usage.Fold(r, transcript.MainStream, "")
		}
	})
	want := slices.Collect(in.tree.Abandoned())
	if len(want) < records/10 {
		t.Fatalf("%d records of %d are on branches that were left: nothing was compared", len(want), records)
	}
	for range 2 { // asked again, it says the same
		if got := slices.Collect(out.tree.Abandoned()); !slices.Equal(want, got) {
			t.Errorf("%d records are on branches that were left, want %d", len(got), len(want))
		}
	}
	if in.usage.Messages() != out.usage.Messages() || in.usage.OutputTokens() != out.usage.OutputTokens() {
		t.Errorf("%d messages of %d tokens, want %d of %d", out.usage.Messages(), out.usage.OutputTokens(), in.usage.Messages(), in.usage.OutputTokens())
	}
	if err := out.err(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) < 4 {
		t.Errorf("%d scratch files: nothing was tested", len(left))
	}
	size := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	in = newSets(nil)
	with := size()
	runtime.KeepAlive(out)
	if err := out.close(); err != nil {
		t.Error(err)
	}
	if used := with - min(with, size()); used > 512<<10 {
		t.Errorf("%d KB are in memory for %d records", used>>10, records)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%d scratch files are left behind", len(left))
	}
}

// broken is a scratch file that fails from the n-th call on.
type broken struct {
	dropped
	left *int
}

var errDisk = errors.New("no space left")

func (b broken) fail() error {
	if *b.left--; *b.left < 0 {
		return errDisk
	}
	return nil
}

func (b broken) WriteAt(p []byte, at int64) (int, error) {
	if err := b.fail(); err != nil {
		return 0, err
	}
	return b.File.WriteAt(p, at)
}

func (b broken) ReadAt(p []byte, at int64) (int, error) {
	if err := b.fail(); err != nil {
		return 0, err
	}
	return b.File.ReadAt(p, at)
}

// TestSetsSurviveAFullDisk: whichever call fails, reading ends, and the error is
// told.
func TestSetsSurviveAFullDisk(t *testing.T) {
	pages(t, 8)
	for _, calls := range []int{-1, 0, 1, 2, 10, 300, 1000} {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			dir := t.TempDir()
			left := max(0, calls)
			room := func() (transcript.Scratch, error) {
				if calls < 0 {
					return nil, errDisk
				}
				file, err := os.CreateTemp(dir, "scratch")
				return broken{dropped{file}, &left}, err
			}
			s := newSets(room)
			generated(t, 10_000, func(r transcript.Record) {
				s.known.Add(r)
				s.tree.Fold(r, "")
				s.usage.Fold(r, transcript.MainStream, "")
			})
			for range s.tree.Abandoned() {
				_ = s // it ends
			}
			if diff := cmp.Diff(errDisk, s.err(), cmpopts.EquateErrors()); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if err := s.close(); err != nil && !errors.Is(err, errDisk) {
				t.Error(err)
			}
			if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
				t.Errorf("%s left behind", strings.Join(files, ", "))
			}
		})
	}
}
