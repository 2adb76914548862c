// Package connect opens what a TeamMemory names: its object store and its
// Letta back end.
//
// It reads Secrets by name and live, never through a cache, so that the
// controller needs no right to list them, and it refuses to send a Secret to a
// host that the Secret itself does not name: whoever may write a TeamMemory
// could otherwise point the team's keys at a server of his own.
package connect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/appserver"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/store"
)

// HostsAnnotation on a Secret lists the hosts, with ports where not the
// default, that the Secret may be sent to, separated by commas.
const HostsAnnotation = "undersong.dev/hosts"

// Keys of the Secrets.
const (
	apiKeyKey          = "apiKey"
	tokenKey           = "token"
	accessKeyIDKey     = "accessKeyID"
	secretAccessKeyKey = "secretAccessKey"
)

// fresh is how long an opened connection is used before its Secret is read
// again.
const fresh = 30 * time.Second

// waitForSecret is how long to wait for a Secret that is missing or wrong. No
// watch tells: the controller may not list Secrets.
const waitForSecret = 20 * time.Second

// Opener opens stores and Letta clients and keeps them for a short while.
type Opener struct {
	// Secrets reads Secrets live.
	Secrets client.Reader
	// Transport carries the requests to Letta and to the store; nil means
	// defaults of those packages.
	Transport http.RoundTripper
	// Clock tells how old a connection is.
	Clock clock.PassiveClock

	// FirstRest is how long an endpoint is left alone after a first failure.
	// Zero means a second.
	FirstRest time.Duration

	mu     sync.Mutex
	stores map[types.UID]opened[*store.Bucket]
	lettas map[types.UID]opened[letta.Client]
	// pairs are what the store said of each memory's key pair for scrubs.
	pairs map[types.UID]pair
	// gates are those of Letta's endpoints, and of each memory at its endpoint.
	// There are as many as TeamMemories ever named.
	gates map[gateKey]*gate
	// refusals are the memories whose key Letta refused.
	refusals map[types.UID]refusal
}

// refusal is Letta's no to one key, and until when nobody asks again.
type refusal struct {
	until      time.Time
	generation int64
	err        *outcome.Error
}

// opened is a connection and what it was made of.
type opened[T any] struct {
	made       time.Time
	generation int64
	version    string // resource version of the Secret
	of         any    // what of the spec it was made of
	value      T
}

// New returns an Opener.
func New(secrets client.Reader, transport http.RoundTripper, c clock.PassiveClock) *Opener {
	return &Opener{
		Secrets: secrets, Transport: transport, Clock: c,
		stores: map[types.UID]opened[*store.Bucket]{}, lettas: map[types.UID]opened[letta.Client]{},
		pairs: map[types.UID]pair{}, gates: map[gateKey]*gate{}, refusals: map[types.UID]refusal{},
	}
}

// Store opens the memory's object store.
func (o *Opener) Store(ctx context.Context, m *v1alpha1.TeamMemory) (*store.Bucket, error) {
	spec := m.Spec.Store
	return open(ctx, o, o.stores, m, spec, &spec.CredentialsSecretRef, []string{spec.Endpoint, spec.PublicEndpoint}, []string{accessKeyIDKey, secretAccessKeyKey},
		func(secret map[string]string) (*store.Bucket, error) { //nolint:contextcheck // opening signs an example URL and reads no network
			b, err := store.Open(store.Options{
				Endpoint: spec.Endpoint, PublicEndpoint: spec.PublicEndpoint, Region: spec.Region, Bucket: spec.Bucket, Prefix: spec.Prefix,
				AccessKeyID: secret[accessKeyIDKey], SecretAccessKey: secret[secretAccessKeyKey], Transport: o.Transport,
			})
			if err != nil {
				return nil, outcome.Stallf(v1alpha1.InvalidSpecReason, "spec.store: %w", err)
			}
			return b, nil
		})
}

// Resting is an error while nobody may call the memory's Letta, because it did
// not answer a short while ago, asked to wait, or refused the key.
func (o *Opener) Resting(m *v1alpha1.TeamMemory) error {
	if err := o.refused(m); err != nil {
		return err
	}
	return o.LettaError(m, o.gatesOf(m).closed())
}

// gateKey names a gate: an endpoint's, or with a memory that one's there.
type gateKey struct {
	url    string
	memory types.UID
}

// gatesOf returns the gates that a memory's calls to Letta pass.
func (o *Opener) gatesOf(m *v1alpha1.TeamMemory) gates {
	url := m.Spec.Letta.BaseURL
	return gates{endpoint: o.gate(gateKey{url: url}), memory: o.gate(gateKey{url: url, memory: m.UID})}
}

// gate returns one gate.
func (o *Opener) gate(k gateKey) *gate {
	o.mu.Lock()
	defer o.mu.Unlock()
	g, ok := o.gates[k]
	if !ok {
		g = &gate{clock: o.Clock, first: o.FirstRest}
		if g.first == 0 {
			g.first = firstRest
		}
		o.gates[k] = g
	}
	return g
}

// refuse notes that Letta refused a memory's key, and for how long that is
// believed: each session of the memory would hear the same.
func (o *Opener) refuse(m *v1alpha1.TeamMemory, err error) error {
	e := outcome.Of(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refusals[m.UID] = refusal{until: o.Clock.Now().Add(e.After), generation: m.Generation, err: e}
	return err
}

// refused is what Letta said of a memory's key, while that is believed.
func (o *Opener) refused(m *v1alpha1.TeamMemory) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, ok := o.refusals[m.UID]
	if !ok {
		return nil
	}
	// Never longer than it was to be, should the clock be set back.
	wait := min(r.until.Sub(o.Clock.Now()), r.err.After)
	if wait <= 0 || r.generation != m.Generation {
		delete(o.refusals, m.UID)
		return nil
	}
	e := *r.err
	e.After = wait + jitter(wait)
	return &e
}

// connection is what a client of Letta is made of.
type connection struct {
	backend v1alpha1.Backend
	url     string
}

// Letta opens the memory's Letta back end.
func (o *Opener) Letta(ctx context.Context, m *v1alpha1.TeamMemory) (letta.Client, error) {
	spec := m.Spec.Letta
	key := apiKeyKey
	dial := func(key string) (letta.Client, error) {
		return api.New(api.Options{BaseURL: spec.BaseURL, Key: key, Transport: o.Transport})
	}
	if spec.Backend == v1alpha1.BackendAppServer {
		key = tokenKey
		dial = func(token string) (letta.Client, error) {
			return appserver.New(appserver.Options{BaseURL: spec.BaseURL, Token: token, Transport: o.Transport})
		}
	}
	return open(ctx, o, o.lettas, m, connection{spec.Backend, spec.BaseURL}, spec.CredentialsSecretRef, []string{spec.BaseURL}, []string{key},
		func(secret map[string]string) (letta.Client, error) {
			c, err := dial(secret[key])
			if err != nil {
				return nil, outcome.Stallf(v1alpha1.InvalidSpecReason, "spec.letta: %w", err)
			}
			return gated{Client: c, gates: o.gatesOf(m)}, nil
		})
}

// Forget drops what is kept for a memory, so that the next call reads its
// Secrets again.
func (o *Opener) Forget(uid types.UID) {
	forget(o, o.stores, uid)
	forget(o, o.lettas, uid)
}

// forget drops one connection. Called when its server refuses a key.
func forget[T any](o *Opener, kept map[types.UID]opened[T], uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(kept, uid)
}

// open returns the kept connection, or makes one with the Secret's values. One
// that is made of the same outlives other changes of the memory: an App Server
// ends the turns of a connection that is closed, so that nobody closes one
// before it is idle.
func open[T any](ctx context.Context, o *Opener, kept map[types.UID]opened[T], m *v1alpha1.TeamMemory, of any, ref *v1alpha1.LocalRef, urls, keys []string, dial func(map[string]string) (T, error)) (T, error) {
	var none T
	now := o.Clock.Now()
	o.mu.Lock()
	have, ok := kept[m.UID]
	o.mu.Unlock()
	if ok && have.generation == m.Generation && now.Sub(have.made) < fresh {
		return have.value, nil
	}
	secret, version, err := o.secret(ctx, m.Namespace, ref, urls, keys)
	if err != nil {
		return none, err
	}
	value := have.value
	if !ok || have.of != of || have.version != version {
		if value, err = dial(secret); err != nil {
			return none, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	kept[m.UID] = opened[T]{made: now, generation: m.Generation, version: version, of: of, value: value}
	return value, nil
}

// secret reads a Secret and checks that it has the keys and names the hosts.
func (o *Opener) secret(ctx context.Context, namespace string, ref *v1alpha1.LocalRef, urls, keys []string) (map[string]string, string, error) {
	if ref == nil {
		return map[string]string{}, "", nil
	}
	name := namespace + "/" + ref.Name
	var s corev1.Secret
	err := o.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", outcome.RetryAfterf(v1alpha1.DependencyNotReadyReason, waitForSecret, "create the Secret %s with the keys %s", name, strings.Join(keys, ", "))
	case apierrors.IsForbidden(err):
		return nil, "", outcome.RetryAfterf(v1alpha1.DependencyNotReadyReason, waitForSecret, "let the controller read the Secret %s: name it in the Role undersong-controller-secrets of this namespace, as config/samples does", name)
	case err != nil:
		return nil, "", fmt.Errorf("read the Secret %s: %w", name, err)
	}
	values := make(map[string]string, len(keys))
	for _, k := range keys {
		v := strings.TrimSpace(string(s.Data[k]))
		if v == "" {
			return nil, "", outcome.RetryAfterf(v1alpha1.DependencyNotReadyReason, waitForSecret, "give the Secret %s a value for the key %s", name, k)
		}
		values[k] = v
	}
	for _, u := range urls {
		if err := allowed(s.Annotations[HostsAnnotation], u); err != nil {
			return nil, "", outcome.RetryAfterf(v1alpha1.InvalidSpecReason, waitForSecret, "the Secret %s: %w", name, err)
		}
	}
	return values, s.ResourceVersion, nil
}

// allowed reports an error unless the annotation names the URL's host.
func allowed(annotation, raw string) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("the URL it is to be sent to cannot be read")
	}
	for h := range strings.SplitSeq(annotation, ",") {
		if strings.EqualFold(strings.TrimSpace(h), u.Host) {
			return nil
		}
	}
	return fmt.Errorf("its annotation %s does not name %s, so it is not sent there", HostsAnnotation, u.Host)
}
