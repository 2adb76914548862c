package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/undersong-dev/undersong/internal/transcript"
)

const (
	// pieceSize is what is read in turns.
	pieceSize = 8 << 20
	// sampleSize is what gitleaks reads: all of it would take it half an hour.
	sampleSize = 4 << 20
	// slack is by how much the memory of two passes may differ: by when the
	// collector ran.
	slack = 32 << 20
)

// pieces calls f for parts of whole lines of a file.
func pieces(path string, size int, f func(raw []byte) error) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buf, waiting := make([]byte, size), 0
	for {
		n, err := io.ReadFull(file, buf[waiting:])
		have := buf[:waiting+n]
		if end := bytes.LastIndexByte(have, '\n') + 1; end > 0 {
			if err := f(have[:end]); err != nil {
				return err
			}
			waiting = copy(buf, have[end:])
		} else {
			waiting = len(have)
		}
		if err != nil {
			return nil // the end of the file
		}
	}
}

// took returns how long this process computes for f.
func took(f func() error) (time.Duration, error) {
	start := cpu()
	err := f()
	return cpu() - start, err
}

// reading reads the words of all of it, and the same with encoding/json, piece
// by piece in turns.
func (b *bench) reading(context.Context) error {
	var speeds, ratios []float64
	var ourWords, theirWords int
	err := pieces(b.large, pieceSize, func(raw []byte) error {
		us, err := took(func() error {
			n, err := words(transcript.NewLines(bytes.NewReader(raw), 0))
			ourWords += n
			return err
		})
		them, _ := took(func() error {
			theirWords += wordsByEncodingJSON(raw)
			return nil
		})
		speeds, ratios = append(speeds, float64(len(raw))/1e6/us.Seconds()), append(ratios, float64(them)/float64(us))
		return err
	})
	if err != nil {
		return err
	}
	if ourWords == 0 || theirWords < ourWords {
		return errors.New("the readers do not read the same") // theirs keeps what nobody typed
	}
	speed, ratio := median(speeds), median(ratios)
	b.add("reading with words, one core", "≥ 300 MB/s", fmt.Sprintf("%.0f MB/s", speed), speed >= 300)
	b.add("reading with words, against encoding/json", "≥ 5 ×", fmt.Sprintf("%.1f ×", ratio), ratio >= 5)
	return nil
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// resuming goes on at the end of the large file and of one of 1 MB, in turns.
func (b *bench) resuming(context.Context) error {
	little := filepath.Join(filepath.Dir(b.large), "little.jsonl")
	if err := writeTalk(little, 1<<20, b.seed, false); err != nil {
		return err
	}
	open := func(path string) (*os.File, transcript.Signature, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, transcript.Signature{}, err
		}
		info, err := file.Stat()
		if err != nil {
			return file, transcript.Signature{}, err
		}
		tail := make([]byte, 64<<10)
		from := info.Size() - int64(len(tail))
		if _, err := file.ReadAt(tail, from); err != nil {
			return file, transcript.Signature{}, err
		}
		last := bytes.LastIndexByte(tail[:len(tail)-1], '\n') + 1
		sig, err := transcript.Sign(file, from+int64(last))
		return file, sig, err
	}
	resume := func(file *os.File, sig transcript.Signature) (time.Duration, error) {
		start := now()
		signer, same, err := sig.Resume(file)
		if err != nil || !same {
			return 0, errors.Join(err, errors.New("the file is taken for another"))
		}
		if _, err := file.Seek(sig.Offset, io.SeekStart); err != nil {
			return 0, err
		}
		lines := transcript.NewSignedLines(file, signer)
		n := 0
		for lines.Next() {
			n++
		}
		if _, err := lines.Signature(lines.Offset()); err != nil || n != 1 {
			return 0, errors.Join(err, fmt.Errorf("%d lines came, want 1", n))
		}
		return now().Sub(start), nil
	}
	small, smallSig, err := open(little)
	large, largeSig, lerr := open(b.large)
	defer func() { _, _ = small.Close(), large.Close() }() // nothing was written
	if err := errors.Join(err, lerr); err != nil {
		return err
	}
	var more []float64
	for range 200 {
		base, err := resume(small, smallSig)
		all, lerr := resume(large, largeSig)
		if err := errors.Join(err, lerr); err != nil {
			return err
		}
		more = append(more, (all-base).Seconds()*1e3)
	}
	b.add("going on at its end, against 1 MB (median of 200)", "≤ 10 ms more", fmt.Sprintf("%+.2f ms", median(more)), median(more) <= 10)
	return nil
}

// child runs a program and returns what it prints and its largest resident set.
func child(ctx context.Context, out io.Writer, name string, args ...string) (int64, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, &errs
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("run %s: %w: %s", filepath.Base(name), err, errs.String())
	}
	return peak(cmd.ProcessState), nil
}

// memory runs a program on the large file and on that of a sixteenth, and adds a
// row for what it takes at most, and one for what it takes more.
func (b *bench) memory(ctx context.Context, what string, most int64, out io.Writer, name string, args ...string) error {
	little, err := child(ctx, io.Discard, name, append(args, b.small)...)
	if err != nil {
		return err
	}
	all, err := child(ctx, out, name, append(args, b.large)...)
	if err != nil {
		return err
	}
	most1, more := what+": peak memory", what+": more than for a sixteenth of the file"
	if all == 0 {
		b.skip(most1, "≤ "+megabytes(most), "no figures on this system")
		return nil
	}
	b.add(most1, "≤ "+megabytes(most), megabytes(all), all <= most)
	b.add(more, "≤ "+megabytes(slack), megabytes(max(0, all-little)), all-little <= slack)
	return nil
}

func (b *bench) readingMemory(ctx context.Context) error {
	return b.memory(ctx, "reading with words", 100<<20, io.Discard, b.self, "pass", "words")
}

func (b *bench) inspecting(ctx context.Context) error {
	const what = "undersong transcript inspect --json"
	if b.undersong == "" {
		b.skip(what+": peak memory", "≤ 100 MB", "without -undersong")
		return nil
	}
	return b.memory(ctx, what, 100<<20, io.Discard, b.undersong, "transcript", "inspect", "--json")
}

// packing reads, redacts and packs all of it as the daemon does, and brief talks.
func (b *bench) packing(ctx context.Context) error {
	var out bytes.Buffer
	if err := b.memory(ctx, "reading, redacting, packing as the daemon", 100<<20, &out, b.self, "pass", "pack"); err != nil {
		return err
	}
	var large packed
	if err := json.Unmarshal(out.Bytes(), &large); err != nil {
		return err
	}
	out.Reset()
	if _, err := child(ctx, &out, b.self, "pass", "pack", b.brief); err != nil {
		return err
	}
	var brief packed
	if err := json.Unmarshal(out.Bytes(), &brief); err != nil {
		return err
	}
	if large.Kept == 0 || large.File < b.size || brief.File < b.size/16 {
		return errors.New("not all of it was packed")
	}
	share := func(part, all int64) (float64, string) {
		of := 100 * float64(part) / float64(all)
		return of, fmt.Sprintf("%.1f %%", of)
	}
	of, text := share(large.Archive, large.Kept)
	b.add("archive, of the raw bytes of the kept records", "≤ 15 %", text, of <= 15)
	of, text = share(brief.Archive, brief.File)
	b.add("archive, of the file, a talk of short prompts", "≤ 15 %", text, of <= 15)
	return nil
}

// redacting compares with gitleaks' default rules, on parts from all over the
// file.
func (b *bench) redacting(ctx context.Context) error {
	const what, bar = "redaction, against gitleaks' default", "≥ 4 ×"
	if len(b.gitleaks) == 0 {
		b.skip(what, bar, "without -gitleaks")
		return nil
	}
	sample := filepath.Join(filepath.Dir(b.large), "sample.jsonl")
	file, err := os.Create(sample)
	if err != nil {
		return err
	}
	parts := max(1, b.size/pieceSize)
	err = pieces(b.large, pieceSize, func(raw []byte) error {
		raw = raw[:min(int64(len(raw)), sampleSize/parts)]
		_, err := file.Write(raw[:bytes.LastIndexByte(raw, '\n')+1])
		return err
	})
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, b.gitleaks[0], append(b.gitleaks[1:], sample)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: gitleaks cannot be run: %v\n%s", err, errs.String())
		b.skip(what, bar, "gitleaks cannot be built here")
		return ctx.Err()
	}
	var times struct {
		Ours   float64 `json:"ours"`   // seconds
		Theirs float64 `json:"theirs"` // seconds
		Bytes  int64   `json:"bytes"`
	}
	if err := json.Unmarshal(out.Bytes(), &times); err != nil || times.Ours <= 0 {
		return fmt.Errorf("read what gitleaks took: %w", err)
	}
	ratio := times.Theirs / times.Ours
	b.add(fmt.Sprintf("%s (%s from all over it)", what, megabytes(times.Bytes)), bar, fmt.Sprintf("%.1f ×", ratio), ratio >= 4)
	return nil
}
