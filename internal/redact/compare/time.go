package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/undersong-dev/undersong/internal/redact"
)

// times are the seconds that both took for the same lines.
type times struct {
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs"`
	Bytes  int     `json:"bytes"`
}

// pieceSize is what both read in turns, so that other work of the machine hits
// both.
const pieceSize = 128 << 10

// measure redacts the lines of a file, and has gitleaks' default detector look
// for secrets in the same lines, in turns.
func measure(path string, out io.Writer) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	ours, err := redact.New()
	if err != nil {
		return err
	}
	theirs, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return err
	}
	ours.Line([]byte("{}")) // what is made once is made
	theirs.DetectBytes([]byte("{}"))
	t := times{Bytes: len(raw)}
	for len(raw) > 0 {
		end := min(len(raw), pieceSize)
		if n := bytes.IndexByte(raw[end:], '\n'); n >= 0 {
			end += n + 1
		} else {
			end = len(raw)
		}
		lines := bytes.Split(bytes.TrimSuffix(raw[:end], []byte("\n")), []byte("\n"))
		raw = raw[end:]
		start := time.Now()
		for _, line := range lines {
			ours.Line(line)
		}
		between := time.Now()
		for _, line := range lines {
			theirs.DetectBytes(line)
		}
		t.Ours += between.Sub(start).Seconds()
		t.Theirs += time.Since(between).Seconds()
	}
	return json.NewEncoder(out).Encode(t)
}
