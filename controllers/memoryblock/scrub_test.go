//go:build envtest

package memoryblock

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/seal"
)

// TestAScrubbedTextStaysOut: of what is shown and of what is pinned at once, of what
// the agent writes once more when the Scrubber is through, and of what is restored.
func TestAScrubbedTextStaysOut(t *testing.T) {
	const leaked = "the lamp room code is heron-nine"
	w := newWorld(t, nil)
	w.write(remote, "pitfalls", "- "+leaked)
	learned := w.learned(remote, "pitfalls")
	old := w.settle(learned).Status
	if !strings.Contains(old.Value, leaked) {
		t.Fatalf("the block says %q", old.Value)
	}
	team := func() *v1alpha1.TeamMemory {
		mem := &v1alpha1.TeamMemory{}
		w.must(w.admin.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, mem))
		return mem
	}
	identity, err := w.r.Connect.ScrubIdentity(t.Context(), team(), true)
	w.must(err)
	key := bytes.Repeat([]byte{9}, redact.KnownKeySize)
	digest, err := redact.KnownDigest(key, []byte(leaked))
	w.must(err)
	sealed, err := seal.Seal(key, identity.Recipient())
	w.must(err)
	mem := team()
	mem.Spec.Scrubs = []v1alpha1.Scrub{{ID: "one", Mode: v1alpha1.ScrubRemove, Length: int32(len(leaked)), Digest: digest, SealedKey: sealed}}
	w.must(w.admin.Update(t.Context(), mem))

	w.later()
	b := w.settle(learned)
	if strings.Contains(b.Status.Value+b.Status.History[0].Change, leaked) || !strings.Contains(b.Status.Value, "[redacted:scrub-one]") {
		t.Errorf("shown: %+v", b.Status)
	}
	if !strings.Contains(w.has(remote, "pitfalls").Value, leaked) {
		t.Error("the Scrubber could not count what it would have found")
	}
	pinned := w.pinned("", "conventions", "- "+leaked)
	w.settle(pinned)
	if got := w.has(remote, "conventions").Value; strings.Contains(got, leaked) {
		t.Errorf("pinned: %q", got)
	}

	mem = team()
	mem.Status.Scrubs = []v1alpha1.ScrubStatus{{ID: "one", Mode: v1alpha1.ScrubRemove, Phase: v1alpha1.ScrubDone}}
	w.must(w.r.Client.Status().Update(t.Context(), mem))
	w.write(remote, "pitfalls", "- again: "+leaked)
	w.later()
	w.settle(learned)
	if got := w.has(remote, "pitfalls").Value; got != "- again: [redacted:scrub-one]" {
		t.Errorf("what the agent wrote once more is %q", got)
	}
	w.change(learned, func(s *v1alpha1.MemoryBlockSpec) { s.Restore = old.Revision })
	w.later()
	w.settle(learned)
	if got := w.has(remote, "pitfalls").Value; got != "- [redacted:scrub-one]" {
		t.Errorf("restored: %q", got)
	}
}
