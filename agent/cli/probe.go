package cli

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

const (
	// grantWithin is how long the first grant is waited for.
	grantWithin = 20 * time.Second
	grantEvery  = 250 * time.Millisecond
)

// errNoGrant: nobody answered in time. It need not be wrong.
var errNoGrant = errors.New("the controller has made no grant yet")

// probe tries the way that every segment takes: it waits for a grant and puts
// one small object into the first free slot, which nothing reads. No daemon
// may run meanwhile.
func (s *System) probe(ctx context.Context, home string, config note.Config, c *kube.Client) error {
	registry, err := upload.OpenRegistry(home)
	if err != nil {
		return err
	}
	identity, err := daemon.ReadIdentity(home)
	if err != nil {
		return err
	}
	grants := upload.NewGrants(identity, config.StoreHost, registry)
	ctx, cancel := context.WithTimeout(ctx, s.probeWithin)
	defer cancel()
	for {
		live := &v1alpha1.Workstation{}
		if err := c.Get(ctx, kube.Key{Namespace: config.Namespace, Name: registry.Name()}, live); err != nil {
			if ctx.Err() != nil {
				return errNoGrant
			}
			return explain(err)
		}
		if _, err := grants.Offer(live.Status.Grant); err != nil {
			return err
		}
		if slot, err := grants.Take(); err == nil {
			return upload.Put(ctx, upload.NewHTTPClient(http.DefaultTransport), slot, []byte("undersong init"))
		}
		timer := s.Clock.NewTimer(grantEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errNoGrant
		case <-timer.C():
		}
	}
}
