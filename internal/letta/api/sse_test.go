package api

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/letta"
)

type read struct{ Name, Data string }

// readAll reads all events and how the stream ended.
func readAll(r io.Reader) ([]read, error) {
	var out []read
	e := newEvents(r)
	for {
		ev, err := e.next()
		if err != nil {
			return out, err
		}
		out = append(out, read{ev.name, string(ev.data)})
	}
}

func TestEvents(t *testing.T) {
	cases := map[string]struct {
		reason string
		stream string
		want   []read
	}{
		"Empty":       {"a stream of nothing has no events", "", nil},
		"Two":         {"an empty line ends an event", "data: a\n\ndata: b\n\n", []read{{"", "a"}, {"", "b"}}},
		"Cut":         {"an event without its empty line may be cut, and does not count", "data: a\n\ndata: b\n", []read{{"", "a"}}},
		"CutLine":     {"nor does a line without its end", "data: a\n\ndata: b", []read{{"", "a"}}},
		"Named":       {"the name belongs to one event only", "event: error\ndata: a\n\ndata: b\n\n", []read{{"error", "a"}, {"", "b"}}},
		"NameAlone":   {"a name without data is no event, and is forgotten", "event: error\n\ndata: b\n\n", []read{{"", "b"}}},
		"Lines":       {"data over several lines is one text", "data: a\ndata: b\n\n", []read{{"", "a\nb"}}},
		"EmptyData":   {"empty data is data", "data\ndata:\n\n", []read{{"", "\n"}}},
		"CRLF":        {"lines may end as in HTTP", "data: a\r\n\r\n", []read{{"", "a"}}},
		"Comments":    {"comments keep a stream awake and say nothing", ": ping\n\nid: 1\nretry: 5\nunknown\ndata: a\n\n", []read{{"", "a"}}},
		"OneSpace":    {"only one space is not part of the value", "data:  a\n\ndata:b\n\n", []read{{"", " a"}, {"", "b"}}},
		"Mark":        {"a byte order mark at the start is none of the line", "\xef\xbb\xbfdata: a\n\n", []read{{"", "a"}}},
		"Colons":      {"the first colon cuts", "data: {\"a\":1}\n\n", []read{{"", `{"a":1}`}}},
		"Binary":      {"bytes are bytes", "data: \x00\xff\n\n", []read{{"", "\x00\xff"}}},
		"ManyBlanks":  {"empty lines between events are nothing", "\n\n\ndata: a\n\n\n\n", []read{{"", "a"}}},
		"SpacedField": {"a field name is taken as it is", " data: a\n\n", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(strings.NewReader(tc.stream))
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s: ends with %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEventsHaveLimits(t *testing.T) {
	const prefix = len("data: ")
	at := strings.Repeat("x", maxEvent-prefix-1)
	cases := map[string]struct {
		reason string
		stream io.Reader
		events int
		want   error
	}{
		"LineAtLimit":   {"a line of just the limit, its end included, is read", strings.NewReader("data: " + at + "\n\n"), 1, io.EOF},
		"LineOver":      {"one byte more is refused", strings.NewReader("data: " + at + "x\n\n"), 0, errEventTooLong},
		"LineForever":   {"a line without an end is not collected", endless{'x'}, 0, errEventTooLong},
		"LinesForever":  {"nor is an event of lines without an end", repeat("data: 0123456789\n"), 0, errEventTooLong},
		"BlankForever":  {"a stream without an end stops", repeat(": " + strings.Repeat("z", 4<<10) + "\n\n"), 0, errStreamTooLong},
		"EventsForever": {"whatever it says", repeat("data: " + strings.Repeat("y", 1<<20-8) + "\n\n"), 64, errStreamTooLong},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEvents(tc.stream)
			n := 0
			var err error
			for ; err == nil; n++ {
				_, err = e.next()
			}
			if n-1 != tc.events || !errors.Is(err, tc.want) {
				t.Errorf("%s: %d events and then %v, want %d and %v", tc.reason, n-1, err, tc.events, tc.want)
			}
		})
	}
}

type endless struct{ b byte }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.b
	}
	return len(p), nil
}

type repeated struct {
	text string
	at   int
}

func repeat(text string) io.Reader { return &repeated{text: text} }

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

// FuzzEventsAreTheSameHoweverTheBytesArrive feeds any bytes to the parser: it
// does not panic, keeps its bounds, and one byte at a time gives the same
// events as all at once.
func FuzzEventsAreTheSameHoweverTheBytesArrive(f *testing.F) {
	f.Add([]byte("data: {\"message_type\":\"ping\"}\n\nevent: error\ndata: {}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("\xef\xbb\xbfdata: a\r\ndata:b\r\n\r\n: c\nid\n\n"))
	f.Add([]byte("data\n\n\nid"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, wholeErr := readAll(bytes.NewReader(stream))
		slow, slowErr := readAll(iotest.OneByteReader(bytes.NewReader(stream)))
		if diff := cmp.Diff(whole, slow); diff != "" {
			t.Errorf("events: -at once +byte by byte:\n%s", diff)
		}
		if !errors.Is(wholeErr, io.EOF) || !errors.Is(slowErr, io.EOF) {
			t.Errorf("the end: %v at once, %v byte by byte", wholeErr, slowErr)
		}
		total := 0
		for _, ev := range whole {
			total += len(ev.Data)
		}
		if total > len(stream) {
			t.Errorf("%d bytes of data from %d bytes of stream", total, len(stream))
		}
	})
}

// FuzzTurnIsNeverGoodByAccident feeds any stream to the turn's reader: a turn
// ends well only if the stream says so, and what its errors quote of it are
// plain words.
func FuzzTurnIsNeverGoodByAccident(f *testing.F) {
	f.Add([]byte("data: {\"message_type\":\"stop_reason\",\"stop_reason\":\"end_turn\"}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("event: error\ndata: {\"error_type\":\"llm error\"}\n\n"))
	f.Add([]byte("data: {\"message_type\":\"assistant_message\",\"content\":[{\"text\":1}],\"date\":7}\n\n"))
	f.Add([]byte("data: {\"message_type\":\"usage_statistics\",\"total_tokens\":-1}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var reader turnReader
		e := newEvents(bytes.NewReader(stream))
		for {
			ev, err := e.next()
			if err != nil || reader.add(ev) {
				break
			}
		}
		if !reader.over() {
			return
		}
		err := reader.failure("send")
		if err == nil && !bytes.Contains(stream, []byte(letta.StopEndTurn)) && !bytes.Contains(stream, []byte(`\u`)) {
			t.Errorf("a turn ended well without having been said to")
		}
		if err != nil && (len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "<>{}\"\n\\")) {
			t.Errorf("the error quotes the stream: %q", err)
		}
		if u := reader.turn.Usage; u.PromptTokens < 0 || u.CompletionTokens < 0 || u.TotalTokens < 0 {
			t.Errorf("tokens below zero: %+v", u)
		}
	})
}
