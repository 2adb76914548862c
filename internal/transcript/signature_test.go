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

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }
