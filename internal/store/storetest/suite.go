// Package storetest is what tests need around package store: a suite that says
// what a server must do for us, and a transport that fails on order.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/internal/store"
)

// Run runs the suite. open returns an empty bucket of the server, or an empty
// prefix of one, whose public endpoint can be reached from here.
func Run(t *testing.T, open func(t *testing.T) *store.Bucket) {
	t.Helper()
	s := suite{open}
	t.Run("Objects", s.objects)
	t.Run("Limits", s.limits)
	t.Run("Missing", s.missing)
	t.Run("List", s.list)
	t.Run("Keys", s.keys)
	t.Run("EndedContext", s.endedContext)
	t.Run("Grants", s.grants)
	t.Run("GrantIsForPutOnly", s.grantIsForPutOnly)
	t.Run("GrantExpires", s.grantExpires)
	t.Run("GrantExpiry", s.grantExpiry)
	t.Run("GrantOfTooMuch", s.grantOfTooMuch)
	t.Run("UploadCutShort", s.uploadCutShort)
	t.Run("EmptiedSlot", s.emptiedSlot)
}

type suite struct {
	open func(t *testing.T) *store.Bucket
}

// slot is the key that the tests of grants use.
const slot = "inbox/u-1/000000000001"

func put(t *testing.T, b *store.Bucket, key, data string) {
	t.Helper()
	if err := b.Put(t.Context(), key, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

// contents lists the bucket and reads what is there.
func contents(t *testing.T, b *store.Bucket) map[string]string {
	t.Helper()
	got := map[string]string{}
	for info, err := range b.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := b.Get(t.Context(), info.Key, store.MaxObject)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(data)) != info.Size {
			t.Errorf("%s has %d bytes, listed with %d", info.Key, len(data), info.Size)
		}
		got[info.Key] = string(data)
	}
	return got
}

// written leaves out of a comparison when an object was written, which the
// suite looks at in list.
var written = cmpopts.IgnoreFields(store.Info{}, "Modified")

func (s suite) objects(t *testing.T) {
	b := s.open(t)
	if err := b.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"archive/team/x/1.jsonl.zst": "first",
		"archive/team/x/~2.json":     "{}",
		"empty":                      "",
		"big":                        strings.Repeat("0123456789abcdef", 1<<16) + "end",
	}
	for key, data := range want {
		put(t, b, key, "something else that was there before")
		put(t, b, key, data)
		put(t, b, key, data) // again: nothing changes
	}
	if diff := cmp.Diff(want, contents(t, b)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	for key, data := range want {
		info, err := b.Stat(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(store.Info{Key: key, Size: int64(len(data))}, info, written); diff != "" {
			t.Errorf("Stat (-want +got):\n%s", diff)
		}
	}
	for key := range want {
		for range 2 { // again: it is not there, which is what was asked for
			if err := b.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{}, contents(t, b)); diff != "" {
		t.Errorf("after Delete (-want +got):\n%s", diff)
	}
}

func (s suite) limits(t *testing.T) {
	b := s.open(t)
	put(t, b, "ten", "0123456789")
	put(t, b, "none", "")
	cases := map[string]struct {
		key   string
		limit int64
		data  string
		err   error
	}{
		"AtTheLimit":     {"ten", 10, "0123456789", nil},
		"OnePastIt":      {"ten", 9, "", store.ErrTooLarge},
		"NothingAllowed": {"ten", 0, "", store.ErrTooLarge},
		"NothingThere":   {"none", 0, "", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			data, err := b.Get(t.Context(), tc.key, tc.limit)
			if string(data) != tc.data || !errors.Is(err, tc.err) {
				t.Errorf("Get: %q, %v, want %q, %v", data, err, tc.data, tc.err)
			}
		})
	}
	if err := b.Put(t.Context(), "huge", make([]byte, store.MaxObject+1)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Put of one byte past the limit: %v, want ErrTooLarge", err)
	}
}

func (s suite) missing(t *testing.T) {
	b := s.open(t)
	put(t, b, "a/b", "there")
	for _, key := range []string{"nothing", "a", "a/b/c", "a/c"} {
		if _, err := b.Get(t.Context(), key, 10); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("Get %s: %v, want ErrNotExist", key, err)
		}
		if _, err := b.Stat(t.Context(), key); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("Stat %s: %v, want ErrNotExist", key, err)
		}
		if err := b.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete %s: %v", key, err)
		}
	}
	if diff := cmp.Diff(map[string]string{"a/b": "there"}, contents(t, b)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func (s suite) list(t *testing.T) {
	b := s.open(t)
	var want []store.Info
	for i := range 12 {
		key := fmt.Sprintf("inbox/u-1/%012d", i)
		put(t, b, key, strings.Repeat("x", i))
		want = append(want, store.Info{Key: key, Size: int64(i)})
	}
	put(t, b, "inbox/u-10/000000000001", "another workstation")
	put(t, b, "blocks/x", "another area")

	list := func(prefix string, most int) []store.Info {
		var got []store.Info
		for info, err := range b.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, info); len(got) == most {
				break
			}
		}
		return got
	}
	if diff := cmp.Diff(want, list("inbox/u-1/", 0), written); diff != "" {
		t.Errorf("one prefix (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:5], list("inbox/u-1/", 5), written); diff != "" {
		t.Errorf("stopped after five (-want +got):\n%s", diff)
	}
	for _, info := range list("inbox/u-1/", 0) {
		stat, err := b.Stat(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		// A listing is more exact than a header, by less than a second.
		if off := info.Modified.Sub(stat.Modified).Abs(); info.Modified.IsZero() || off > time.Second {
			t.Errorf("%s was written at %s, listed with %s", info.Key, stat.Modified, info.Modified)
		}
	}
	if got := list("", 0); len(got) != len(want)+2 {
		t.Errorf("everything: %d objects, want %d", len(got), len(want)+2)
	}
	if got := list("inbox/u-2/", 0); len(got) != 0 {
		t.Errorf("a prefix of nothing: %v", got)
	}
}

func (s suite) keys(t *testing.T) {
	b := s.open(t)
	keys := map[string]string{
		"Empty": "", "Climbing": "inbox/../archive/x", "Up": "..", "Here": "a/./b", "Root": "/a", "End": "a/", "Double": "a//b",
		"Space": "a b", "Query": "a?b", "Percent": "a%2fb", "NUL": "a\x00b", "Unicode": "ä", "Long": strings.Repeat("x", 1025),
	}
	for name, key := range keys {
		t.Run(name, func(t *testing.T) {
			_, getErr := b.Get(t.Context(), key, 1)
			_, statErr := b.Stat(t.Context(), key)
			_, _, signErr := b.PresignPut(t.Context(), key, time.Minute)
			for call, err := range map[string]error{
				"Get": getErr, "Stat": statErr, "PresignPut": signErr, "Put": b.Put(t.Context(), key, nil), "Delete": b.Delete(t.Context(), key),
			} {
				if err == nil || errors.Is(err, store.ErrNotExist) {
					t.Errorf("%s accepted it: %v", call, err)
				}
			}
		})
	}
	if diff := cmp.Diff(map[string]string{}, contents(t, b)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func (s suite) endedContext(t *testing.T) {
	b := s.open(t)
	put(t, b, "a", "there")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := b.Get(ctx, "a", 10)
	_, statErr := b.Stat(ctx, "a")
	var listErr error
	for _, err := range b.List(ctx, "") {
		listErr = err
	}
	for call, err := range map[string]error{
		"Get": getErr, "Stat": statErr, "List": listErr, "Check": b.Check(ctx),
		"Put": b.Put(ctx, "b", nil), "Delete": b.Delete(ctx, "a"),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", call, err)
		}
	}
	if diff := cmp.Diff(map[string]string{"a": "there"}, contents(t, b)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// grants tries what somebody who has a URL could try with it.
func (s suite) grants(t *testing.T) {
	type attempt struct {
		url     string
		headers map[string]string
		data    string
	}
	cases := map[string]struct {
		reason string
		before map[string]string // objects that are there
		change func(*attempt)
		status int
		after  map[string]string
	}{
		"AsGranted": {
			reason: "what it is for",
			status: http.StatusOK, after: map[string]string{slot: "data"},
		},
		"Overwrite": {
			reason: "a slot takes one object, and tells that it has one",
			before: map[string]string{slot: "earlier"},
			status: http.StatusPreconditionFailed, after: map[string]string{slot: "earlier"},
		},
		"OtherKey": {
			reason: "the key is signed",
			change: func(a *attempt) { a.url = strings.Replace(a.url, "000000000001?", "000000000002?", 1) },
			status: http.StatusForbidden,
		},
		"OtherWorkstation": {
			reason: "the key is signed",
			change: func(a *attempt) { a.url = strings.Replace(a.url, "u-1", "u-2", 1) },
			status: http.StatusForbidden,
		},
		"Climbing": {
			reason: "the path is not cleaned before the signature is checked",
			change: func(a *attempt) {
				a.url = strings.Replace(a.url, "/inbox/u-1/", "/archive/../inbox/u-1/", 1)
			},
			status: http.StatusForbidden,
		},
		"ClimbingOut": {
			reason: "nor after it",
			change: func(a *attempt) {
				a.url = strings.Replace(a.url, "000000000001?", "../../archive/forged?", 1)
			},
			status: http.StatusForbidden,
		},
		"ClimbingEncoded": {
			reason: "nor when it is encoded",
			change: func(a *attempt) {
				a.url = strings.Replace(a.url, "000000000001?", "%2e%2e%2f%2e%2e%2farchive%2fforged?", 1)
			},
			status: http.StatusForbidden,
		},
		"MissingHeader": {
			reason: "without the condition it could overwrite, so the header is signed",
			change: func(a *attempt) { delete(a.headers, "If-None-Match") },
			status: http.StatusForbidden,
		},
		"LargeAndRefused": {
			reason: "the refusal is heard although it comes before the end of the body",
			change: func(a *attempt) { delete(a.headers, "If-None-Match"); a.data = strings.Repeat("x", 1<<20) },
			status: http.StatusForbidden,
		},
		"LargeOverwrite": {
			reason: "so is the full slot",
			before: map[string]string{slot: "earlier"},
			change: func(a *attempt) { a.data = strings.Repeat("x", 1<<20) },
			status: http.StatusPreconditionFailed, after: map[string]string{slot: "earlier"},
		},
		"OtherHeader": {
			reason: "the header's value is signed",
			before: map[string]string{slot: "earlier"},
			change: func(a *attempt) { a.headers["If-None-Match"] = `"0"` },
			status: http.StatusForbidden, after: map[string]string{slot: "earlier"},
		},
		"LongerExpiry": {
			reason: "the expiry is signed",
			change: func(a *attempt) { a.url = strings.Replace(a.url, "X-Amz-Expires=60", "X-Amz-Expires=3600", 1) },
			status: http.StatusForbidden,
		},
		"NoSignature": {
			reason: "a URL alone is nothing",
			change: func(a *attempt) { a.url, _, _ = strings.Cut(a.url, "?") },
			status: http.StatusForbidden,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := s.open(t)
			for key, data := range tc.before {
				put(t, b, key, data)
			}
			signed, headers, err := b.PresignPut(t.Context(), slot, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			a := attempt{url: signed, headers: headers, data: "data"}
			if tc.change != nil {
				tc.change(&a)
				if a.url == signed && a.headers["If-None-Match"] == "*" && a.data == "data" {
					t.Fatal("the case changes nothing")
				}
			}
			if status := upload(t, a.url, a.headers, a.data); status != tc.status {
				t.Errorf("%s: answered %d, want %d", tc.reason, status, tc.status)
			}
			if diff := cmp.Diff(tc.after, contents(t, b), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: objects (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func (s suite) grantIsForPutOnly(t *testing.T) {
	b := s.open(t)
	put(t, b, slot, "there")
	signed, headers, err := b.PresignPut(t.Context(), slot, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodPost} {
		if status := send(t, method, signed, headers, ""); status != http.StatusForbidden && status != http.StatusMethodNotAllowed {
			t.Errorf("%s: answered %d, want 403", method, status)
		}
	}
	if diff := cmp.Diff(map[string]string{slot: "there"}, contents(t, b)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func (s suite) grantExpires(t *testing.T) {
	b := s.open(t)
	signed, headers, err := b.PresignPut(t.Context(), slot, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		status := upload(t, signed, headers, "data")
		if status == http.StatusForbidden {
			break
		}
		if status != http.StatusOK && status != http.StatusPreconditionFailed {
			t.Fatalf("answered %d before it expired", status)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("still valid after a minute")
		}
	}
	if err := b.Delete(t.Context(), slot); err != nil {
		t.Fatal(err)
	}
	if status := upload(t, signed, headers, "late"); status != http.StatusForbidden {
		t.Errorf("an expired URL and an empty slot: answered %d, want 403", status)
	}
	if diff := cmp.Diff(map[string]string{}, contents(t, b)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// grantOfTooMuch: a URL cannot say how much may be written, so the size must
// be seen before anything is read.
func (s suite) grantOfTooMuch(t *testing.T) {
	b := s.open(t)
	signed, headers, err := b.PresignPut(t.Context(), slot, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	headers["Content-Encoding"] = "gzip" // not signed, and not to be believed
	const size = 3 << 20
	if status := upload(t, signed, headers, strings.Repeat("x", size)); status != http.StatusOK {
		t.Fatalf("answered %d, want 200", status)
	}
	info, err := b.Stat(t.Context(), slot)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size != size {
		t.Errorf("Stat says %d bytes, want %d", info.Size, size)
	}
	if _, err := b.Get(t.Context(), slot, size-1); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Get: %v, want ErrTooLarge", err)
	}
	if data, err := b.Get(t.Context(), slot, size); err != nil || !bytes.Equal(data, bytes.Repeat([]byte("x"), size)) {
		t.Errorf("Get at the limit: %d bytes, %v", len(data), err)
	}
}

func (s suite) grantExpiry(t *testing.T) {
	b := s.open(t)
	for expiry, fine := range map[time.Duration]bool{
		0: false, time.Second - 1: false, time.Second: true, time.Hour: true, time.Hour + 1: false,
	} {
		signed, _, err := b.PresignPut(t.Context(), slot, expiry)
		if (err == nil) != fine {
			t.Errorf("%v: error %v", expiry, err)
		}
		if !fine {
			continue
		}
		u, err := url.Parse(signed)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := u.Query().Get("X-Amz-Expires"), fmt.Sprint(int(expiry.Seconds())); got != want {
			t.Errorf("%v: the URL says %s s, want %s", expiry, got, want)
		}
		if got, want := u.Query().Get("X-Amz-SignedHeaders"), "host;if-none-match"; got != want {
			t.Errorf("%v: signed headers are %s, want %s", expiry, got, want)
		}
	}
}

// uploadCutShort: an object is there whole or not at all, and a slot is not
// lost when a connection is.
func (s suite) uploadCutShort(t *testing.T) {
	b := s.open(t)
	signed, headers, err := b.PresignPut(t.Context(), slot, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, signed, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrClosedPipe)))
	if err != nil {
		t.Fatal("the URL cannot be parsed") // the error has the signature
	}
	req.ContentLength = 8
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Errorf("half an object: answered %d", res.StatusCode)
		}
	}
	if status := upload(t, signed, headers, "halfhalf"); status != http.StatusOK {
		t.Errorf("the whole object after it: answered %d, want 200", status)
	}
	if diff := cmp.Diff(map[string]string{slot: "halfhalf"}, contents(t, b)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// emptiedSlot: as long as a URL is valid, an emptied slot takes another
// object. The controller has verified the first by then and reads no slot twice.
func (s suite) emptiedSlot(t *testing.T) {
	b := s.open(t)
	signed, headers, err := b.PresignPut(t.Context(), slot, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"first", "second"} {
		if status := upload(t, signed, headers, data); status != http.StatusOK {
			t.Fatalf("%s: answered %d, want 200", data, status)
		}
		if diff := cmp.Diff(map[string]string{slot: data}, contents(t, b)); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
		if err := b.Delete(t.Context(), slot); err != nil {
			t.Fatal(err)
		}
	}
}

func upload(t *testing.T, rawURL string, headers map[string]string, data string) int {
	t.Helper()
	return send(t, http.MethodPut, rawURL, headers, data)
}

// send sends a request as somebody without credentials would, and returns the
// status. It does not clean the path. A server may refuse a large body before
// its end and close; then the answer is lost now and then, and, as every
// uploader must, it tries again.
func send(t *testing.T, method, rawURL string, headers map[string]string, data string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 20 {
		req, err := http.NewRequestWithContext(ctx, method, rawURL, strings.NewReader(data))
		if err != nil {
			t.Fatal("the URL cannot be parsed") // the error has the signature
		}
		for name, value := range headers {
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body) // only the status matters
		_ = res.Body.Close()
		return res.StatusCode
	}
	t.Fatalf("%s: no answer", method)
	return 0
}
