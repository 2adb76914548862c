package transcript_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/undersong-dev/undersong/internal/transcript"
)

func TestSignature(t *testing.T) {
	file := bytes.Repeat([]byte("0123456789abcde\n"), 20<<10) // 320 KiB
	changed := func(at int) []byte {
		b := bytes.Clone(file)
		b[at] ^= 1
		return b
	}
	const offset = 200 << 10
	cases := map[string]struct {
		reason string
		file   []byte
		want   bool
	}{
		"Same":          {"the same file matches", file, true},
		"Grown":         {"what was appended does not matter", append(bytes.Clone(file), "more\n"...), true},
		"Exact":         {"nor that nothing was", file[:offset], true},
		"Short":         {"a shorter file is another", file[:offset-1], false},
		"Empty":         {"so is an empty one", nil, false},
		"HeadChanged":   {"another beginning is another file", changed(1023), false},
		"TailChanged":   {"so is another end", changed(offset - 1), false},
		"TailStart":     {"up to 64 KiB before it", changed(offset - 64<<10), false},
		"BehindChanged": {"bytes that were not read may change", changed(offset), true},
		"Moved":         {"a cut moves what follows it", append(bytes.Clone(file[:100<<10]), file[100<<10+1:]...), false},
	}
	sig, err := transcript.Sign(bytes.NewReader(file), offset)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := sig.Matches(bytes.NewReader(tc.file))
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("%s: Matches = %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
	if ok, err := (transcript.Signature{}).Matches(failing{errors.New("broken")}); !ok || err != nil {
		t.Errorf("nothing was read, so every file matches: %v, %v", ok, err)
	}
	if _, err := transcript.Sign(bytes.NewReader(file), int64(len(file))+1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("signing more than there is: %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if _, err := transcript.Sign(bytes.NewReader(file), -1); err == nil {
		t.Error("signing a negative offset succeeds")
	}
	broken := errors.New("broken")
	if _, err := sig.Matches(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("a file that cannot be read: %v, want %v", err, broken)
	}
}

// TestSignatureOfWhatWasRead: lines of every length, one too long among them,
// have the signature of the file as it was read.
func TestSignatureOfWhatWasRead(t *testing.T) {
	x := func(n int) string { return string(bytes.Repeat([]byte("x"), n)) + "\n" }
	huge := x(transcript.MaxLine + 3<<20) // its beginning is dropped before its end is read
	file := []byte(x(10) + x(100) + x(70<<10) + x(1) + x(300<<10) + huge + x(5) + x(65<<10) + x(transcript.MaxLine+70<<10) + x(0) + "torn")
	starts := []int64{0, 11, 112, int64(bytes.Index(file, []byte(huge))), int64(bytes.Index(file, []byte(huge)) + len(huge))}
	for _, from := range starts {
		sig, err := transcript.Sign(bytes.NewReader(file), from)
		if err != nil {
			t.Fatal(err)
		}
		signer, same, err := sig.Resume(bytes.NewReader(file))
		if err != nil || !same {
			t.Fatalf("Resume: %v, %v", same, err)
		}
		lines := transcript.NewSignedLines(bytes.NewReader(file[from:]), signer)
		for _, line := range signed(t, lines, file) {
			if line.TooLong != (line.Length > transcript.MaxLine+1) {
				t.Errorf("line at %d: too long is %v", line.Offset, line.TooLong)
			}
		}
		if want := int64(len(file) - 4); lines.Offset() != want {
			t.Errorf("offset %d, want %d", lines.Offset(), want)
		}
		if _, err := lines.Signature(from + 1); err == nil {
			t.Error("bytes in the middle of a line were signed")
		}
	}
	small := bytes.Repeat([]byte(x(99)), 3000) // in reads of some bytes
	if got := signed(t, transcript.NewSignedLines(&chunks{small, 7}, new(transcript.Signer)), small); len(got) != 3000 {
		t.Errorf("%d lines, want 3000", len(got))
	}
	alone := []byte(huge) // the head is in what is dropped
	if got := signed(t, transcript.NewSignedLines(bytes.NewReader(alone), new(transcript.Signer)), alone); len(got) != 1 || !got[0].TooLong {
		t.Errorf("%d lines, want one that is too long", len(got))
	}
	torn := append(bytes.Clone(file[:112]), bytes.Repeat([]byte("x"), transcript.MaxLine+3<<20)...) // and still being written
	if got := signed(t, transcript.NewSignedLines(bytes.NewReader(torn), new(transcript.Signer)), torn); len(got) != 2 {
		t.Errorf("%d lines, want 2", len(got))
	}
	if _, err := transcript.NewLines(bytes.NewReader(file), 0).Signature(0); err == nil {
		t.Error("lines that are not signed have a signature")
	}
}

// TestCutAndRegrownWhileItIsRead: a file that another has taken the place of
// between reading and signing is not the file that was read.
func TestCutAndRegrownWhileItIsRead(t *testing.T) {
	before, after := []byte("{\"a\":1}\n{\"b\":2}\n"), []byte("{\"a\":1}\n{\"c\":3}\n{\"b\":2}\n")
	lines := transcript.NewSignedLines(bytes.NewReader(before), new(transcript.Signer))
	for lines.Next() {
	}
	sig, err := lines.Signature(lines.Offset())
	if err != nil {
		t.Fatal(err)
	}
	if same, err := sig.Matches(bytes.NewReader(after)); same || err != nil {
		t.Errorf("Matches = %v, %v, want false", same, err)
	}
	if same, err := sig.Matches(bytes.NewReader(before)); !same || err != nil {
		t.Errorf("Matches of what was read = %v, %v, want true", same, err)
	}
}

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }
