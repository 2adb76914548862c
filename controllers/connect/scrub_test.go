package connect

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/seal"
)

// pairStore is a bucket that may have one object, and counts who reads it.
type pairStore struct {
	mu    sync.Mutex
	pair  string
	reads int
}

// ServeHTTP implements http.Handler.
func (p *pairStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Method == http.MethodPut:
	case p.pair != "":
		p.reads++
		w.Header().Set("Last-Modified", "Mon, 02 Nov 2026 09:00:00 GMT")
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, p.pair) // the client notices
	default:
		p.reads++
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>") // the client notices
	}
}

// TestAPairIsReadOnceInAWhile: an entry of spec.scrubs that cannot be opened does
// not have every reconcile read the store, and one that can be opened again is
// noticed soon, by all at once.
func TestAPairIsReadOnceInAWhile(t *testing.T) {
	bucket := &pairStore{}
	server := httptest.NewServer(bucket)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	o, clock := opener(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "store", Annotations: map[string]string{HostsAnnotation: host}},
		Data:       map[string][]byte{"accessKeyID": []byte("a"), "secretAccessKey": []byte("s")},
	})
	identity, err := seal.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	const value = "heron-nine"
	key := []byte(strings.Repeat("k", redact.KnownKeySize))
	digest, err := redact.KnownDigest(key, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := seal.Seal(key, identity.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	m := memory("https://letta.example.com")
	m.Spec.Store = v1alpha1.Store{Endpoint: server.URL, Bucket: "bucket", CredentialsSecretRef: v1alpha1.LocalRef{Name: "store"}}
	m.Spec.Scrubs = []v1alpha1.Scrub{{ID: "s", Mode: v1alpha1.ScrubRemove, Length: int32(len(value)), Digest: digest, SealedKey: sealed}}
	builtIn, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	// As each reconciler has one, and one in which nothing is kept yet.
	all := []*Redactors{{BuiltIn: builtIn, Open: o}, {BuiltIn: builtIn, Open: o}}
	hides := func() bool {
		t.Helper()
		hidden := 0
		for _, r := range append(all, &Redactors{BuiltIn: builtIn, Open: o}) {
			redactor, err := r.For(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if clean, _ := redactor.Text("the code is " + value); !strings.Contains(clean.String(), value) {
				hidden++
			}
		}
		if hidden != 0 && hidden != len(all)+1 {
			t.Fatalf("%d of %d know the text", hidden, len(all)+1)
		}
		return hidden > 0
	}
	for range 20 {
		if hides() {
			t.Fatal("an entry was opened without its pair")
		}
	}
	if bucket.reads != 1 {
		t.Errorf("the pair that is not there was read %d times, want once", bucket.reads)
	}
	bucket.pair = identity.String() // the bucket was restored
	if hides() {
		t.Error("somebody asked the store at once")
	}
	clock.Step(fresh)
	if !hides() || bucket.reads != 2 {
		t.Errorf("after %s the pair was read %d times, want once more, and the text is hidden", fresh, bucket.reads)
	}
	clock.Step(fresh)
	if !hides() || bucket.reads != 3 { // by the one that has nothing yet
		t.Errorf("what was opened was read %d times, want 3", bucket.reads)
	}
	// Another generation may have another store.
	m.Generation++
	if !hides() || bucket.reads != 4 {
		t.Errorf("a changed memory had it read %d times, want 4", bucket.reads)
	}
	// Who may make one asks always: another bucket may be behind the address.
	bucket.pair = ""
	made, err := o.ScrubIdentity(t.Context(), m, true)
	if err != nil || made.Recipient() == identity.Recipient() || bucket.reads != 5 {
		t.Errorf("making a pair: %v after %d reads, want a new one after 5", err, bucket.reads)
	}
	if got, err := o.ScrubIdentity(t.Context(), m, false); err != nil || got.String() != made.String() || bucket.reads != 5 {
		t.Errorf("what was made: %v after %d reads, want it known", err, bucket.reads)
	}
}
