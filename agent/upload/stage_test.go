package upload

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
)

// depot is a stage with a store that answers as the test says. Nothing of it
// speaks to a cluster.
type depot struct {
	t      *testing.T
	stage  *Stage
	clock  *clocktesting.FakeClock
	dir    string
	said   map[string]string
	ids    []string
	grants int64
	puts   map[string]int // by session
	answer func(session string) int
	offer  func()
	queue  *spool.Spool
	bodies map[string]string // to the session
	made   int
	slot   int64 // of the newest request; those of a grant are from 100 times its number on
	// mu is the store's: a request that hangs up tells the race detector
	// nothing of when it ended.
	mu sync.Mutex
}

func (d *depot) Set(part, message string) {
	if d.said[part] = message; message == "" {
		delete(d.said, part)
	}
}

// append adds a segment to a session.
func (d *depot) append(id string) {
	d.t.Helper()
	d.made++
	session, err := d.queue.Ensure(id, d.clock.Now())
	if err == nil {
		err = session.Append(read.Main, read.Batch{
			Header: segment.Header{
				Stream: read.Main, EndOffset: 10, Offsets: []int64{0}, Indexes: []int64{0}, Rules: redact.RulesVersion,
				At: d.clock.Now().Add(time.Duration(d.made) * time.Second),
			},
			Lines:   []redact.Redacted{redact.Literal(`{"type":"user"}`)},
			Cursor:  read.Cursor{Path: "/p/s.jsonl", Offset: 10, NextIndex: 1},
			Project: &read.Project{Name: "tide", Remote: "git.example.com/ada/tide"},
		})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	data, err := session.Read(session.State().Head.Segments)
	if err != nil {
		d.t.Fatal(err)
	}
	d.bodies[string(data)] = id
}

// hangUp is an answer that is none.
const hangUp = -1

// newDepot has n sessions with one segment each, the first of them the oldest.
func newDepot(t *testing.T, n int) *depot {
	t.Helper()
	d := &depot{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)), dir: t.TempDir(),
		said: map[string]string{}, puts: map[string]int{}, answer: func(string) int { return http.StatusOK },
	}
	queue, err := spool.Open(spool.Options{Dir: d.dir, Owner: "ada", Workstation: "ws-0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	d.bodies = map[string]string{}
	d.queue = queue
	for i := range n {
		d.ids = append(d.ids, fmt.Sprintf("session-%02d", i))
		d.append(d.ids[i])
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = io.Copy(&body, r.Body)
		d.mu.Lock()
		id := d.bodies[body.String()]
		d.puts[id]++
		_, _ = fmt.Sscanf(r.URL.Path, "/b/inbox/%d", &d.slot)
		status := d.answer(id)
		d.mu.Unlock()
		if status == hangUp {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	grants, identity, _ := newGrants(t)
	grants.storeHost = server.URL
	d.offer = func() {
		d.grants++
		if _, err := grants.Offer(grantOf(t, identity, d.grants, 100*d.grants, 32, server.URL)); err != nil {
			t.Fatal(err)
		}
	}
	desk := &Desk{Clock: d.clock}
	desk.Init()
	d.stage = &Stage{
		Spool: queue, Grants: grants, Desk: desk, HTTP: NewHTTPClient(server.Client().Transport), Clock: d.clock,
		Publisher: &Publisher{Redactor: mustRedactor(t)}, Backoff: DefaultBackoff, Trouble: d,
		Log: slog.New(slog.DiscardHandler), Done: func() {},
	}
	d.stage.Init()
	d.stage.retries.after[PartAPI] = retry{at: d.clock.Now().Add(1000 * time.Hour)} // nothing is published
	return d
}

func mustRedactor(t *testing.T) *redact.Redactor {
	t.Helper()
	r, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// meet orders what the test does before and after what the store does.
func (d *depot) meet() {
	d.mu.Lock()
	defer d.mu.Unlock()
}

// pass is one pass, with a new grant if one was asked for, long enough after the
// last for everything to be due.
func (d *depot) pass() {
	d.t.Helper()
	if d.grants == 0 || d.stage.Desk.ask {
		d.stage.Desk.ask = false
		d.offer()
	}
	d.meet()
	d.stage.pass(d.t.Context())
	d.meet()
	d.clock.Step(3 * time.Minute)
}

// waiting lists the sessions whose segment is not in the store.
func (d *depot) waiting() []string {
	var list []string
	for _, id := range d.ids {
		session, _ := d.stage.Spool.Session(id)
		state := session.State()
		if state.Ready() != state.Head {
			list = append(list, id)
		}
	}
	return list
}

// TestOneSegmentHoldsUpItsSessionAlone: whatever keeps the oldest segment from
// being taken, the others go up, and the person reads which one it is.
func TestOneSegmentHoldsUpItsSessionAlone(t *testing.T) {
	const first = "session-00"
	cases := map[string]struct {
		status int
		broken bool // its file cannot be read
		words  string
	}{
		"too large for a proxy": {status: http.StatusRequestEntityTooLarge, words: "status 413"},
		"a bad request":         {status: http.StatusBadRequest, words: "status 400"},
		"a fault":               {status: http.StatusServiceUnavailable, words: "status 503"},
		"a redirect":            {status: http.StatusTemporaryRedirect, words: "status 307"},
		"forbidden":             {status: http.StatusForbidden, words: "status 403"},
		"not found":             {status: http.StatusNotFound, words: "status 404"},
		"no answer":             {status: hangUp, words: "cannot be reached"},
		"not readable":          {broken: true, words: "local disk"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDepot(t, 4)
			file := filepath.Join(d.dir, first, "1.seg")
			d.answer = func(id string) int {
				if id == first && !tc.broken {
					return tc.status
				}
				return http.StatusOK
			}
			if tc.broken {
				must(t, os.Rename(file, file+".away"))
				must(t, os.Mkdir(file, 0o700))
			}
			for range 4 {
				d.pass()
			}
			if diff := cmp.Diff([]string{first}, d.waiting()); diff != "" {
				t.Fatalf("not in the store (-want +got):\n%s", diff)
			}
			for range 20 { // an hour, nobody else has anything to send
				d.pass()
			}
			if d.grants > 4 {
				t.Errorf("%d grants were asked for within an hour", d.grants)
			}
			if tc.status != hangUp { // nobody says whose fault that is
				message := d.said[PartUpload+first]
				if !strings.Contains(message, tc.words) || !strings.Contains(message, "segment 1") {
					t.Errorf("trouble %v, want one of session %s with segment 1 and %q", d.said, first, tc.words)
				}
			}
			d.answer = func(string) int { return http.StatusOK }
			if tc.broken {
				must(t, os.Remove(file))
				must(t, os.Rename(file+".away", file))
			}
			for range 3 {
				d.pass()
			}
			if left := d.waiting(); len(left) > 0 || len(d.said) > 0 {
				t.Errorf("mended: %v wait, trouble %v", left, d.said)
			}
			if m := d.stage.misses; len(m.behind) > 0 || len(m.spent) > 0 {
				t.Errorf("mended: it remembers %v", m)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAStoreThatTakesNothingIsNotAskedForEverySession: it is one trouble, and a
// few requests a pass; every session has its turn, and none waits long when the
// store is back.
func TestAStoreThatTakesNothingIsNotAskedForEverySession(t *testing.T) {
	cases := map[string]struct{ status, most int }{
		"no answer": {hangUp, 1},
		"a fault":   {http.StatusServiceUnavailable, maxRefusals},
		"no bucket": {http.StatusNotFound, maxRefusals},
		"forbidden": {http.StatusForbidden, maxRefusals},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			const n = 12
			d := newDepot(t, n)
			d.answer = func(string) int { return tc.status }
			for pass := range 4 * n {
				before := puts(d)
				d.pass()
				if asked := puts(d) - before; asked > tc.most {
					t.Fatalf("pass %d: %d requests to a store that takes nothing", pass, asked)
				}
			}
			if len(d.puts) != n {
				t.Errorf("only %d of %d sessions were tried", len(d.puts), n)
			}
			if d.said[PartStore] == "" || len(d.said) > 1 {
				t.Errorf("trouble %v, want the store's alone", d.said)
			}
			d.answer = func(string) int { return http.StatusOK }
			for range 2 {
				d.pass()
			}
			if left := d.waiting(); len(left) > 0 || len(d.said) > 0 {
				t.Errorf("the store is back: %v wait, trouble %v", left, d.said)
			}
		})
	}
}

func puts(d *depot) int {
	n := 0
	for _, times := range d.puts {
		n += times
	}
	return n
}

// TestASegmentTooLargeForTheWay: the connection breaks at one segment, while the
// store takes others.
func TestASegmentTooLargeForTheWay(t *testing.T) {
	d := newDepot(t, 3)
	d.answer = func(id string) int {
		if id == "session-00" {
			return hangUp
		}
		return http.StatusOK
	}
	d.pass()
	d.pass()
	for range 3 {
		d.append("session-01")
		d.append("session-02")
		d.pass()
		if diff := cmp.Diff([]string{"session-00"}, d.waiting()); diff != "" {
			t.Errorf("not in the store (-want +got):\n%s", diff)
		}
		if d.said[PartStore] != "" || d.said[PartUpload+"session-00"] == "" {
			t.Errorf("trouble %v, want that of the session alone", d.said)
		}
	}
}

// TestGrantsThatLiveShort: where grants end within minutes, each end is taken for
// what it is.
func TestGrantsThatLiveShort(t *testing.T) {
	d := newDepot(t, 1)
	ended := int64(0)
	d.answer = func(string) int {
		if d.slot/100 <= ended {
			return http.StatusForbidden
		}
		return http.StatusOK
	}
	for n := range 6 {
		if n > 0 {
			ended = d.grants
			d.append("session-00")
			d.pass() // is refused
		}
		d.pass()
		if left := d.waiting(); len(left) > 0 || len(d.said) > 0 {
			t.Errorf("grant %d: %v wait, trouble %v", n+1, left, d.said)
		}
	}
}

// TestWhatMayHaveLeftIsNoted: whatever became of the first try, the session says that
// there was one, so that forget does not say that nothing has left.
func TestWhatMayHaveLeftIsNoted(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusForbidden, http.StatusServiceUnavailable, hangUp} {
		d := newDepot(t, 1)
		d.answer = func(string) int { return status }
		session, _ := d.stage.Spool.Session("session-00")
		if session.State().Sent {
			t.Error("it is said to have left before the first try")
		}
		d.pass()
		must(t, session.Withdraw())
		if !session.State().Sent {
			t.Errorf("status %d: it is not noted that something may have left", status)
		}
	}
}
