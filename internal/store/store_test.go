package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/internal/store/storetest"
	"github.com/undersong-dev/undersong/test/versity"
)

var buckets atomic.Int64

// serve starts a server for one test.
func serve(t *testing.T) *versity.Server {
	t.Helper()
	s, err := versity.Start(t.Context(), versity.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// options returns those for a new bucket of the server.
func options(t *testing.T, s *versity.Server) store.Options {
	t.Helper()
	name := fmt.Sprintf("team-%d", buckets.Add(1))
	if err := s.MakeBucket(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return store.Options{
		Endpoint: s.Endpoint, Region: versity.Region, Bucket: name, AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey,
	}
}

func open(t *testing.T, o store.Options) *store.Bucket {
	t.Helper()
	b, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConformance(t *testing.T) {
	s := serve(t)
	t.Run("Bucket", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) *store.Bucket {
			t.Helper()
			return open(t, options(t, s))
		})
	})
	t.Run("Prefix", func(t *testing.T) {
		o := options(t, s)
		var n int
		storetest.Run(t, func(t *testing.T) *store.Bucket {
			t.Helper()
			n++
			o.Prefix = fmt.Sprintf("some/prefix-%d", n)
			return open(t, o)
		})
	})
	t.Run("SmallPages", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) *store.Bucket {
			t.Helper()
			b := open(t, options(t, s))
			store.SetPageSize(b, 3) // 12 objects are 4 full pages and an empty one
			return b
		})
	})
}

// TestPrefixesDoNotMeet: a bucket below a prefix neither sees nor reaches what
// is beside it, not even where one prefix begins with the other.
func TestPrefixesDoNotMeet(t *testing.T) {
	o := options(t, serve(t))
	whole := open(t, o)
	o.Prefix = "a"
	a := open(t, o)
	o.Prefix = "ab"
	ab := open(t, o)
	for key, b := range map[string]*store.Bucket{"of-a": a, "of-ab": ab, "a/b/whole": whole} {
		if err := b.Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	keys := func(b *store.Bucket) []string {
		var keys []string
		for info, err := range b.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, info.Key)
		}
		return keys
	}
	got := map[string][]string{"a": keys(a), "ab": keys(ab), "whole": keys(whole)}
	want := map[string][]string{"a": {"b/whole", "of-a"}, "ab": {"of-ab"}, "whole": {"a/b/whole", "a/of-a", "ab/of-ab"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestContentTypes(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] = r.Header.Get("Content-Type")
	}))
	defer server.Close()
	b := open(t, store.Options{Endpoint: server.URL, Bucket: "team", AccessKeyID: "a", SecretAccessKey: "b"})
	for _, key := range []string{"a.jsonl.zst", "session.json", "seen-1"} {
		if err := b.Put(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"/team/a.jsonl.zst": "application/zstd", "/team/session.json": "application/json", "/team/seen-1": "application/octet-stream",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("content types (-want +got):\n%s", diff)
	}
}

// everyCall calls everything that speaks to the server and returns the errors.
func everyCall(ctx context.Context, b *store.Bucket) map[string]error {
	_, getErr := b.Get(ctx, "a", 10)
	_, statErr := b.Stat(ctx, "a")
	errs := map[string]error{
		"check": b.Check(ctx), "get": getErr, "stat": statErr, "put": b.Put(ctx, "a", []byte("x")), "delete": b.Delete(ctx, "a"),
	}
	for _, err := range b.List(ctx, "p") {
		errs["list"] = err
	}
	return errs
}

// texts checks that all errors are want and returns their texts.
func texts(t *testing.T, errs map[string]error, want error) map[string]string {
	t.Helper()
	got := map[string]string{}
	for call, err := range errs {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", call, err, want)
		}
		got[call] = fmt.Sprint(err)
	}
	return got
}

// roundTripper is a transport that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestErrors: each trouble is told from the others by every call, in words that
// do not change and tell nothing.
func TestErrors(t *testing.T) {
	s := serve(t)
	stopped := serve(t)
	down := options(t, stopped)
	stopped.Stop()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the caller has gone
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	answering := func(status int, code string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", s.Endpoint+r.URL.Path)
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s, request 42</Message></Error>", code, r.Host)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	wrongKey, wrongID, noBucket := options(t, s), options(t, s), options(t, s)
	wrongKey.SecretAccessKey = "hunter2"
	wrongID.AccessKeyID = "nobody"
	noBucket.Bucket = "not-there"
	at := func(endpoint string) store.Options {
		direct := store.Transport()
		direct.Proxy = nil // what the proxy says is another test
		return store.Options{Endpoint: endpoint, Bucket: "team", AccessKeyID: "nobody", SecretAccessKey: "hunter2", Transport: direct}
	}
	late, nowhere := at(silent.URL), at("http://store.invalid")
	late.Timeout = 100 * time.Millisecond
	nowhere.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "store.invalid", IsNotFound: true}
	})

	cases := map[string]struct {
		reason string
		o      store.Options
		want   error
		detail string
	}{
		"WrongSecret":    {"the signature is wrong", wrongKey, store.ErrAccessDenied, " (SignatureDoesNotMatch)"},
		"WrongID":        {"the key is unknown", wrongID, store.ErrAccessDenied, " (XAdminUserNotFound)"},
		"NoBucket":       {"the bucket is not there", noBucket, store.ErrBucketNotFound, ""},
		"Down":           {"nobody listens", down, store.ErrUnavailable, " (connection refused)"},
		"Silent":         {"no answer before the deadline", late, store.ErrUnavailable, " (no answer in time)"},
		"NoSuchHost":     {"the name does not resolve", nowhere, store.ErrUnavailable, " (host not found)"},
		"Untrusted":      {"nobody vouches for the certificate", at(untrusted.URL), store.ErrUnavailable, " (its certificate is not trusted)"},
		"LinkLocal":      {"credentials of the cloud are there", at("http://169.254.169.254"), store.ErrUnavailable, " (link-local addresses are not allowed)"},
		"LinkLocalIPv6":  {"the same in IPv6", at("http://[fe80::1]"), store.ErrUnavailable, " (link-local addresses are not allowed)"},
		"LinkLocalInIP6": {"IPv4 dressed as IPv6", at("http://[::ffff:169.254.169.254]"), store.ErrUnavailable, " (link-local addresses are not allowed)"},
		"Redirect":       {"where it leads is not what was asked for", at(answering(http.StatusTemporaryRedirect, "")), store.ErrUnavailable, " (HTTP status 307)"},
		"SlowDown":       {"the server is busy", at(answering(http.StatusServiceUnavailable, "SlowDown")), store.ErrUnavailable, " (SlowDown)"},
		"ClockIsWrong":   {"a reason to name", at(answering(http.StatusForbidden, "RequestTimeTooSkewed")), store.ErrAccessDenied, " (RequestTimeTooSkewed)"},
		"ExpiredToken":   {"temporary credentials are over", at(answering(http.StatusBadRequest, "ExpiredToken")), store.ErrAccessDenied, " (ExpiredToken)"},
		"OddCode":        {"only words are repeated", at(answering(http.StatusBadGateway, "see http://x/?k=hunter2")), store.ErrUnavailable, " (HTTP status 502)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := open(t, tc.o)
			got := texts(t, everyCall(t.Context(), b), tc.want)
			want := map[string]string{}
			for call, op := range map[string]string{
				"check": "check bucket", "get": "get a", "stat": "stat a", "put": "put a", "delete": "delete a", "list": "list p",
			} {
				want[call] = op + ": " + tc.want.Error() + tc.detail
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: texts (-want +got):\n%s", tc.reason, diff)
			}
			again := texts(t, everyCall(t.Context(), b), tc.want)
			for _, text := range again {
				for _, secret := range []string{"hunter2", "nobody", "http", "127.0.0.1", "169.254", "fe80", "42", "not-there", "invalid"} {
					if strings.Contains(text, secret) {
						t.Errorf("%q has %q in it", text, secret)
					}
				}
			}
			for call := range want {
				if again[call] != got[call] {
					t.Errorf("%s: %q, then %q", call, got[call], again[call])
				}
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	good := store.Options{Endpoint: "https://s3.example.com", Bucket: "team", AccessKeyID: "a", SecretAccessKey: "hunter2"}
	cases := map[string]struct {
		reason string
		change func(*store.Options)
	}{
		"NoEndpoint":  {"required", func(o *store.Options) { o.Endpoint = "" }},
		"NoScheme":    {"http or https is a decision", func(o *store.Options) { o.Endpoint = "s3.example.com" }},
		"OtherScheme": {"not spoken", func(o *store.Options) { o.Endpoint = "ftp://s3.example.com" }},
		"Path":        {"an endpoint is a host", func(o *store.Options) { o.Endpoint = "https://s3.example.com/team" }},
		"User":        {"secrets are elsewhere", func(o *store.Options) { o.Endpoint = "https://u:hunter2@s3.example.com" }},
		"Query":       {"an endpoint is a host", func(o *store.Options) { o.Endpoint = "https://s3.example.com?k=hunter2" }},
		"Garbage":     {"no URL", func(o *store.Options) { o.Endpoint = "https://s3.example.com:hunter2" }},
		"Public":      {"the same for the public one", func(o *store.Options) { o.PublicEndpoint = "s3.example.com" }},
		"NoBucket":    {"required", func(o *store.Options) { o.Bucket = "" }},
		"Bucket":      {"not a name of a bucket", func(o *store.Options) { o.Bucket = "../team" }},
		"Prefix":      {"a prefix does not climb", func(o *store.Options) { o.Prefix = "a/../b" }},
		"PrefixSlash": {"a prefix has no slash at its end", func(o *store.Options) { o.Prefix = "a/" }},
		"NoID":        {"required", func(o *store.Options) { o.AccessKeyID = "" }},
		"NoSecret":    {"required", func(o *store.Options) { o.SecretAccessKey = "" }},
		"AmazonHost": {"the client would sign for s3.eu-west-1.amazonaws.com", func(o *store.Options) {
			o.PublicEndpoint, o.Region = "https://s3.amazonaws.com", "eu-west-1"
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := good
			tc.change(&o)
			_, err := store.Open(o)
			if err == nil {
				t.Fatalf("%s: accepted", tc.reason)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
}

// TestGrantNamesThePublicHost exactly, whatever the endpoint of the controller,
// and makes no call.
func TestGrantNamesThePublicHost(t *testing.T) {
	cases := map[string]struct{ endpoint, public, want string }{
		"Public":      {"http://store.undersong-system:9000", "https://s3.example.com", "https://s3.example.com"},
		"Port":        {"http://store.undersong-system:9000", "https://s3.example.com:8443", "https://s3.example.com:8443"},
		"NotGiven":    {"https://s3.example.com", "", "https://s3.example.com"},
		"DefaultPort": {"https://s3.example.com", "https://s3.example.com:443", "https://s3.example.com"},
		"IPv6":        {"http://[::1]:9000", "", "http://[::1]:9000"},
		"Amazon":      {"https://s3.us-east-1.amazonaws.com", "", "https://s3.us-east-1.amazonaws.com"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			calls := storetest.FailNth(nil, 1)
			b := open(t, store.Options{
				Endpoint: tc.endpoint, PublicEndpoint: tc.public, Bucket: "team", Prefix: "pre", AccessKeyID: "a", SecretAccessKey: "b", Transport: calls,
			})
			signed, _, err := b.PresignPut(t.Context(), "inbox/u/1", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(signed)
			if err != nil {
				t.Fatal(err)
			}
			if got := u.Scheme + "://" + u.Host; got != tc.want {
				t.Errorf("host is %s, want %s", got, tc.want)
			}
			if u.Path != "/team/pre/inbox/u/1" {
				t.Errorf("path is %s", u.Path)
			}
			if calls.Calls() != 0 {
				t.Errorf("%d calls", calls.Calls())
			}
		})
	}
}

// TestGrantOfAnotherServer: what one server's keys have signed is nothing to
// another.
func TestGrantOfAnotherServer(t *testing.T) {
	a, other := options(t, serve(t)), options(t, serve(t))
	signed, headers, err := open(t, a).PresignPut(t.Context(), "inbox/u/1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	signed = strings.Replace(signed, a.Endpoint+"/"+a.Bucket, other.Endpoint+"/"+other.Bucket, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, signed, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode < 400 || res.StatusCode > 499 {
		t.Errorf("answered %s, want a refusal", res.Status)
	}
	if _, err := open(t, other).Stat(t.Context(), "inbox/u/1"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("Stat: %v, want ErrNotExist", err)
	}
}

// TestKeysOfSegmentsAreKeys: whatever stands in a name, the key made of it is
// one that the store takes.
func TestKeysOfSegmentsAreKeys(t *testing.T) {
	b := open(t, store.Options{Endpoint: "https://s3.example.com", Bucket: "team", Prefix: strings.Repeat("p", 128), AccessKeyID: "a", SecretAccessKey: "b"})
	for _, s := range []string{"team", "", ".", "..", "a/../b", "/", "\x00", "Grüße", "a b", "~", strings.Repeat("x", 128), strings.Repeat("x", 5000)} {
		for _, key := range []string{
			segment.InboxKey(s, -1), segment.ArchiveKey(s, s, s, s, 1, 1<<62, segment.Start(s, s)), segment.SessionKey(s, s, s),
			segment.SeenKey(s, s, s), segment.BlockKey(s, s),
		} {
			if _, _, err := b.PresignPut(t.Context(), key, time.Minute); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
	}
}

// TestSealedGrantFitsTheStatus with real URLs, long names and all slots.
func TestSealedGrantFitsTheStatus(t *testing.T) {
	b := open(t, store.Options{
		Endpoint: "https://" + strings.Repeat("s3.", 70) + "example.com", Region: "ap-southeast-3", Bucket: strings.Repeat("b", 63),
		Prefix: strings.Repeat("p", 128), AccessKeyID: strings.Repeat("A", 128), SecretAccessKey: "b",
	})
	id, err := seal.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	var g seal.Grant
	for n := range int64(32) {
		signed, headers, err := b.PresignPut(t.Context(), segment.InboxKey("0b6f1c9e-5f1c-4a57-9d3c-0f1a2b3c4d5e", 1_000_000+n), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		g.Slots = append(g.Slots, seal.Slot{N: 1_000_000 + n, URL: signed, Headers: headers})
	}
	sealed, err := seal.SealGrant(g, id.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) > 32768/4 {
		t.Errorf("32 slots are %d characters, four grants' worth would no longer fit", len(sealed))
	}
	got, err := id.OpenGrant(sealed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(g, got); diff != "" {
		t.Errorf("grant (-want +got):\n%s", diff)
	}
}

// TestGetStopsAtTheLimit: at once where the server says how long the object is,
// and else as soon as there is a byte too many, also if there is no end.
func TestGetStopsAtTheLimit(t *testing.T) {
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", "Mon, 30 Nov 2026 09:00:00 GMT")
		if r.URL.Path == "/team/ten" {
			_, _ = io.WriteString(w, "01234")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "56789")
			return
		}
		if r.URL.Path == "/team/declared" {
			w.Header().Set("Content-Length", "11") // nothing follows: nobody may wait for it
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		for r.Context().Err() == nil {
			n, err := w.Write(make([]byte, 32<<10))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer server.Close()
	b := open(t, store.Options{Endpoint: server.URL, Bucket: "team", AccessKeyID: "a", SecretAccessKey: "b"})
	if data, err := b.Get(t.Context(), "ten", 10); err != nil || string(data) != "0123456789" {
		t.Errorf("at the limit: %q, %v", data, err)
	}
	if _, err := b.Get(t.Context(), "ten", 9); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("one past the limit: %v, want ErrTooLarge", err)
	}
	if _, err := b.Get(t.Context(), "declared", 10); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("one past the limit, declared: %v, want ErrTooLarge", err)
	}
	if _, err := b.Get(t.Context(), "endless", 1<<20); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("endless: %v, want ErrTooLarge", err)
	}
	// What the sockets hold was sent and not read.
	if got := sent.Load(); got > 32<<20 {
		t.Errorf("the server could send %d MiB", got>>20)
	}
	// A list is XML that the client reads; it has to end too.
	for _, err := range b.List(t.Context(), "") {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("endless list: %v, want ErrUnavailable", err)
		}
	}
}

// TestAnswerCutShort is trouble, not a shorter object.
func TestAnswerCutShort(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Last-Modified", "Mon, 30 Nov 2026 09:00:00 GMT")
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "01234")
	}))
	defer server.Close()
	b := open(t, store.Options{Endpoint: server.URL, Bucket: "team", AccessKeyID: "a", SecretAccessKey: "b"})
	if data, err := b.Get(t.Context(), "a", 10); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Get: %q, %v, want ErrUnavailable", data, err)
	}
}

// TestEveryCallIsOneCall, so that failing the n-th call fails it for good, and
// everything goes through again afterwards.
func TestEveryCallIsOneCall(t *testing.T) {
	o := options(t, serve(t))
	calls := map[string]func(b *store.Bucket) error{
		"Check":  func(b *store.Bucket) error { return b.Check(t.Context()) },
		"Put":    func(b *store.Bucket) error { return b.Put(t.Context(), "k", []byte("x")) },
		"Get":    func(b *store.Bucket) error { _, err := b.Get(t.Context(), "there", 1); return err },
		"Stat":   func(b *store.Bucket) error { _, err := b.Stat(t.Context(), "there"); return err },
		"Delete": func(b *store.Bucket) error { return b.Delete(t.Context(), "k") },
		"List": func(b *store.Bucket) error {
			for _, err := range b.List(t.Context(), "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	if err := open(t, o).Put(t.Context(), "there", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, faults := range []*storetest.Faults{storetest.FailNth(nil, 0), storetest.LoseNth(nil, 0)} {
		o.Transport = faults
		b := open(t, o)
		for name, call := range calls {
			faults.Arm(0)
			if err := call(b); err != nil || faults.Calls() != 1 {
				t.Errorf("%s: %d calls, error %v", name, faults.Calls(), err)
			}
			faults.Arm(1)
			if err := call(b); !errors.Is(err, store.ErrUnavailable) || faults.Calls() != 1 {
				t.Errorf("%s with a fault: %d calls, error %v, want 1 and ErrUnavailable", name, faults.Calls(), err)
			}
			if err := call(b); err != nil {
				t.Errorf("%s after a fault: %v", name, err)
			}
		}
	}
}

// TestLostAnswerOfPut: the object is there although Put said otherwise.
func TestLostAnswerOfPut(t *testing.T) {
	o := options(t, serve(t))
	for name, tc := range map[string]struct {
		faults *storetest.Faults
		want   error
	}{
		"failed": {storetest.FailNth(nil, 1), store.ErrNotExist},
		"lost":   {storetest.LoseNth(nil, 1), nil},
	} {
		o.Transport = tc.faults
		b := open(t, o)
		if err := b.Put(t.Context(), name, []byte("x")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: Put: %v, want ErrUnavailable", name, err)
		}
		if _, err := b.Stat(t.Context(), name); !errors.Is(err, tc.want) {
			t.Errorf("%s: Stat: %v, want %v", name, err, tc.want)
		}
	}
}

// TestServerComesBack on the same folder and address with the same objects.
func TestServerComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s3")
	s, err := versity.Start(t.Context(), versity.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	b := open(t, options(t, s))
	if err := b.Put(t.Context(), "a", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := b.Get(t.Context(), "a", 10); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("while it is down: %v, want ErrUnavailable", err)
	}
	s, err = versity.Start(t.Context(), versity.Options{Dir: dir, Address: strings.TrimPrefix(s.Endpoint, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if data, err := b.Get(t.Context(), "a", 10); err != nil || string(data) != "kept" {
		t.Errorf("after it came back: %q, %v", data, err)
	}
}
