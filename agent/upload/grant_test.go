package upload

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/seal"
)

const host = "https://store.example.com:9000"

func newGrants(t *testing.T) (*Grants, seal.Identity, string) {
	t.Helper()
	home := t.TempDir()
	registry, err := NewRegistry(home)
	if err != nil {
		t.Fatalf("NewRegistry: %v", err)
	}
	identity, err := seal.NewIdentity()
	if err != nil {
		t.Fatalf("NewIdentity: %v", err)
	}
	return NewGrants(identity, host, registry), identity, home
}

// grantOf seals slots from first on, as the answer to a request.
func grantOf(t *testing.T, identity seal.Identity, request, first int64, n int, url string) *v1alpha1.Grant {
	t.Helper()
	var g seal.Grant
	for i := range int64(n) {
		g.Slots = append(g.Slots, seal.Slot{N: first + i, URL: fmt.Sprintf("%s/b/inbox/%d", url, first+i)})
	}
	sealed, err := seal.SealGrant(g, identity.Recipient())
	if err != nil {
		t.Fatalf("SealGrant: %v", err)
	}
	return &v1alpha1.Grant{Request: request, Sealed: sealed, FromSlot: first, ToSlot: first + int64(n) - 1}
}

func TestSlotsAreUsedOnceEvenAfterARestart(t *testing.T) {
	g, identity, home := newGrants(t)
	if taken, err := g.Offer(grantOf(t, identity, 1, 5, 3, host)); !taken || err != nil {
		t.Fatalf("Offer: %v, %v", taken, err)
	}
	var used []int64
	for range 2 {
		slot, err := g.Take()
		if err != nil {
			t.Fatalf("Take: %v", err)
		}
		used = append(used, slot.N)
	}
	registry, err := OpenRegistry(home)
	if err != nil {
		t.Fatalf("OpenRegistry: %v", err)
	}
	again := NewGrants(identity, host, registry)
	if _, err := again.Offer(grantOf(t, identity, 1, 5, 3, host)); err != nil {
		t.Fatalf("Offer: %v", err)
	}
	slot, err := again.Take()
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	if diff := cmp.Diff([]int64{5, 6, 7}, append(used, slot.N)); diff != "" {
		t.Errorf("slots (-want +got):\n%s", diff)
	}
	if _, err := again.Take(); !errors.Is(err, ErrNoSlot) {
		t.Errorf("Take: %v", err)
	}
	if _, ok := again.Slot(5); !ok {
		t.Error("a slot that was taken cannot be tried again")
	}
}

func TestGrantsForOtherHostsAreRefused(t *testing.T) {
	for name, url := range map[string]string{
		"other host":   "https://evil.example.com:9000",
		"other port":   "https://store.example.com",
		"other scheme": "http://store.example.com:9000",
		"user":         "https://ada@store.example.com:9000",
		"suffix":       "https://store.example.com:9000.evil.example.com",
		"no host":      "https:",
	} {
		t.Run(name, func(t *testing.T) {
			g, identity, _ := newGrants(t)
			if _, err := g.Offer(grantOf(t, identity, 1, 1, 2, url)); !errors.Is(err, ErrOtherHost) {
				t.Errorf("Offer: %v", err)
			}
			if _, err := g.Take(); !errors.Is(err, ErrNoSlot) {
				t.Errorf("Take: %v", err)
			}
			if g.pace(Backoff{Min: time.Second, Max: time.Minute}) == 0 {
				t.Error("the next request is not held back")
			}
		})
	}
}

func TestAGrantForSomebodyElseCannotBeOpened(t *testing.T) {
	g, _, _ := newGrants(t)
	other, err := seal.NewIdentity()
	if err != nil {
		t.Fatalf("NewIdentity: %v", err)
	}
	if _, err := g.Offer(grantOf(t, other, 1, 1, 2, host)); !errors.Is(err, ErrGrant) {
		t.Errorf("Offer: %v", err)
	}
}

func TestARefusedGrantIsSpent(t *testing.T) {
	b := Backoff{Min: time.Second, Max: time.Minute}
	g, identity, _ := newGrants(t)
	if _, err := g.Offer(grantOf(t, identity, 1, 1, 32, host)); err != nil {
		t.Fatalf("Offer: %v", err)
	}
	if g.Low() {
		t.Error("32 slots are few")
	}
	g.Worked()
	if worked := g.Refuse(); !worked || !g.Low() || g.pace(b) != 0 {
		t.Error("an expired grant is not simply asked for again")
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if _, err := g.Offer(grantOf(t, identity, int64(2+i), int64(100*(i+1)), 32, host)); err != nil {
			t.Fatalf("Offer: %v", err)
		}
		if g.Refuse() {
			t.Error("a grant that never worked is said to have")
		}
		if got := g.pace(b); got != want {
			t.Errorf("after %d bad grants: wait %v, want %v", i+1, got, want)
		}
	}
	if taken, err := g.Offer(grantOf(t, identity, 3, 1, 32, host)); taken || err != nil {
		t.Errorf("an older grant was taken: %v, %v", taken, err)
	}
}

func TestRegistry(t *testing.T) {
	home := t.TempDir()
	if _, err := OpenRegistry(home); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("OpenRegistry: %v", err)
	}
	made, err := NewRegistry(home)
	if err != nil {
		t.Fatalf("NewRegistry: %v", err)
	}
	if err := made.Registered("uid"); err != nil {
		t.Fatalf("Registered: %v", err)
	}
	opened, err := OpenRegistry(home)
	if err != nil {
		t.Fatalf("OpenRegistry: %v", err)
	}
	if opened.Name() != made.Name() || opened.UID() != "uid" || !workstationName.MatchString(opened.Name()) {
		t.Errorf("name %q, uid %q", opened.Name(), opened.UID())
	}
}

func TestBackoffGrowsToItsBound(t *testing.T) {
	b := Backoff{Min: time.Second, Max: 10 * time.Second}
	for n, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 500: 10 * time.Second} {
		if got := b.After(n); got > most || got < most/2 {
			t.Errorf("After(%d) is %v, want %v to %v", n, got, most/2, most)
		}
	}
}
