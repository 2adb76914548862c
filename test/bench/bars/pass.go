package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// packed is what a transcript became.
type packed struct {
	File    int64 `json:"file"`    // its size
	Kept    int64 `json:"kept"`    // of it, the lines that leave as more than a stub
	Archive int64 `json:"archive"` // the size of all segments, compressed
	Lines   int   `json:"lines"`
}

// pack reads, redacts and packs a transcript as the daemon does, and drops the
// segments.
func pack(ctx context.Context, path string) (packed, error) {
	var p packed
	redactor, err := redact.New()
	if err != nil {
		return p, err
	}
	project := read.Project{Name: "lantern", Remote: "example.test/demo/lantern"}
	r := read.Reader{
		Redactor: redactor, Clock: clock.RealClock{},
		Decide: func(string, string) read.Verdict { return read.Verdict{Allowed: true, Project: project} },
	}
	const session, workstation = "bench-00000000", "ws-0123456789abcdef"
	chain := segment.Start(session, workstation)
	src := read.Source{Session: "1a46e000-0000-4000-8000-000000000001", Stream: read.Main, Path: path, Cwd: "/srv/demo/lantern"}
	var cur read.Cursor
	for seq := int64(1); ; seq++ {
		b, err := r.Next(ctx, src, cur, read.Want{Project: &project})
		if err != nil {
			return p, err
		}
		if cur = b.Cursor; len(b.Lines) == 0 {
			break
		}
		b.Header.Session, b.Header.Workstation, b.Header.Seq, b.Header.PreviousChain = session, workstation, seq, chain.String()
		raw, err := segment.Encode(b.Header, b.Lines)
		if err != nil {
			return p, err
		}
		chain = chain.Next(raw)
		p.Archive += int64(len(segment.Pack(raw)))
		for i, line := range b.Lines {
			end := b.Header.EndOffset
			if i+1 < len(b.Lines) {
				end = b.Header.Offsets[i+1]
			}
			if !strings.HasPrefix(line.String(), `{"type":"`+redact.StubType+`"`) {
				p.Kept += end - b.Header.Offsets[i]
			}
		}
		p.Lines += len(b.Lines)
	}
	p.File = cur.Offset
	return p, nil
}

// words counts the words of people and of the assistant.
func words(lines *transcript.Lines) (n int, err error) {
	for lines.Next() {
		r, err := transcript.Parse(lines.Line().Raw)
		if err != nil {
			continue
		}
		for _, e := range r.Entries(transcript.MainStream, "") {
			n += len(e.Text)
		}
	}
	return n, lines.Err()
}

// wordsByEncodingJSON is the least that a reader built on encoding/json does.
func wordsByEncodingJSON(raw []byte) (n int) {
	for line := range bytes.Lines(raw) {
		var r struct {
			Type, UUID, SessionID, Timestamp, Cwd, GitBranch string
			IsSidechain, IsMeta, IsCompactSummary            bool
			Message                                          struct{ Content json.RawMessage }
		}
		if json.Unmarshal(line, &r) != nil || len(r.Message.Content) == 0 {
			continue
		}
		var blocks []struct{ Type, Text string }
		if r.Message.Content[0] == '[' && json.Unmarshal(r.Message.Content, &blocks) == nil {
			for _, block := range blocks {
				n += len(block.Text)
			}
			continue
		}
		var text string
		if json.Unmarshal(r.Message.Content, &text) == nil {
			n += len(text)
		}
	}
	return n
}

// pass is what the program does with one file in a process of its own, so that
// its memory is that of nothing else.
func pass(ctx context.Context, what, path string) error {
	switch what {
	case "words":
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		n, err := words(transcript.NewLines(file, 0))
		_, werr := os.Stdout.WriteString(strconv.Itoa(n))
		return errors.Join(err, werr, file.Close())
	case "pack":
		debug.SetGCPercent(50) // as undersong daemon has it
		debug.SetMemoryLimit(72 << 20)
		p, err := pack(ctx, path)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(p)
	}
	return fmt.Errorf("no pass %q", what)
}
