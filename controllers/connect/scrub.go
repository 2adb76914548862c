package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// maxIdentity bounds the object that holds a key pair.
const maxIdentity = 1 << 10

// ScrubIdentity is the key pair that the keys of a memory's scrubs are sealed to.
// It lies in the memory's store: whoever reads TeamMemories has the digests and
// not the keys, whoever has the bucket's key has it the other way round. Where
// there is none and create is true, one is made; only one reconciler may, which
// always asks the store. All others are told what anybody of this process heard a
// short while ago: who begins after the Scrubber can open an entry can, too.
func (o *Opener) ScrubIdentity(ctx context.Context, m *v1alpha1.TeamMemory, create bool) (seal.Identity, error) {
	now := o.Clock.Now()
	if !create {
		o.mu.Lock()
		have, ok := o.pairs[m.UID]
		o.mu.Unlock()
		if since := now.Sub(have.made); ok && have.generation == m.Generation && since >= 0 && since < fresh {
			return have.identity, have.err
		}
	}
	identity, err := o.scrubIdentity(ctx, m, create)
	if err == nil || errors.Is(err, store.ErrNotExist) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.pairs[m.UID] = pair{made: now, generation: m.Generation, identity: identity, err: err}
	}
	return identity, err
}

// pair is what the store said when it was asked for a memory's key pair.
type pair struct {
	made       time.Time
	generation int64
	identity   seal.Identity
	err        error
}

func (o *Opener) scrubIdentity(ctx context.Context, m *v1alpha1.TeamMemory, create bool) (seal.Identity, error) {
	bucket, err := o.Store(ctx, m)
	if err != nil {
		return seal.Identity{}, err
	}
	key := segment.ScrubIdentityKey(m.Namespace, m.Name)
	data, err := bucket.Get(ctx, key, maxIdentity)
	switch {
	case err == nil:
		return seal.ParseIdentity(string(data))
	case !errors.Is(err, store.ErrNotExist), !create:
		return seal.Identity{}, o.StoreError(m, err)
	}
	identity, err := seal.NewIdentity()
	if err != nil {
		return seal.Identity{}, err
	}
	return identity, o.StoreError(m, bucket.Put(ctx, key, []byte(identity.String())))
}

// ErrNotSealedHere means that an entry of spec.scrubs was not made for this
// memory's store.
var ErrNotSealedHere = errors.New("its key is sealed to another store than this one; take the entry away and scrub again")

// Known opens one entry of spec.scrubs.
func Known(identity seal.Identity, s *v1alpha1.Scrub) (redact.Known, error) {
	key, err := identity.Open(s.SealedKey)
	if err != nil {
		return redact.Known{}, ErrNotSealedHere
	}
	k := redact.Known{Name: s.ID, Length: int(s.Length), Digest: s.Digest, Key: key}
	if _, err := redact.New(redact.Options{Known: []redact.Known{k}}); err != nil {
		return redact.Known{}, fmt.Errorf("%w; take the entry away and scrub again", err)
	}
	return k, nil
}

// removed opens the entries of spec.scrubs whose texts are taken out of all that
// comes. whole is false if one cannot be opened: the Scrubber says so.
func (o *Opener) removed(ctx context.Context, m *v1alpha1.TeamMemory) (known []redact.Known, whole bool, err error) {
	if !Removes(m) {
		return nil, true, nil
	}
	identity, err := o.ScrubIdentity(ctx, m, false)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return nil, false, err
	}
	whole = true
	for i := range m.Spec.Scrubs {
		s := &m.Spec.Scrubs[i]
		if s.Mode != v1alpha1.ScrubRemove {
			continue
		}
		k, err := Known(identity, s)
		if err != nil {
			whole = false
			continue
		}
		known = append(known, k)
	}
	return known, whole, nil
}

// Scrubbed reports whether a memory has texts that were taken out: none of its
// scrubs is under way any more.
func Scrubbed(m *v1alpha1.TeamMemory) bool {
	for i := range m.Status.Scrubs {
		if s := &m.Status.Scrubs[i]; s.Mode == v1alpha1.ScrubRemove && s.Phase == v1alpha1.ScrubRunning {
			return false
		}
	}
	return Removes(m) && len(m.Status.Scrubs) >= len(m.Spec.Scrubs)
}

// Removes reports whether a memory has a text that is to be taken out.
func Removes(m *v1alpha1.TeamMemory) bool {
	for i := range m.Spec.Scrubs {
		if m.Spec.Scrubs[i].Mode == v1alpha1.ScrubRemove {
			return true
		}
	}
	return false
}
