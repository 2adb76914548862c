// Package api is the back end of internal/letta for Letta's REST API v1:
// Letta Cloud, and the archived self-hosted server 0.16.
//
// It promises what [letta.Client] says, with these means. A turn is always
// sent streaming, in the background and with pings, the only form in which
// the server notices that it gets the same request twice; a reply is taken
// from the stream, in which failures arrive under status 200; a stream that
// falls silent for longer than four pings is lost. Nothing is ever sent a
// second time from here, redirects are refused (a wrong trailing slash is
// answered by one, and behind a proxy it can point to http), and every answer
// has a size limit.
//
// It knows about fifteen calls and ignores every field and message type that
// it does not know, because Cloud is ahead of the published description.
//
// It does not guard against a base URL that points into the cluster or to a
// link-local address: whoever lets users choose the URL gives a Transport
// that refuses those.
package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/internal/letta"
)

const (
	// defaultCallTimeout bounds every call but Send: the server's own slow
	// listings take seconds.
	defaultCallTimeout = 60 * time.Second
	// defaultIdleTimeout is four pings of the server (20 s each) and some
	// air.
	defaultIdleTimeout = 90 * time.Second
	// lookFirst is how long Lookup waits for a replay to begin: the server
	// itself takes 1.75 s to be sure that it does not know an id.
	lookFirst = 5 * time.Second
	// lookIdle is the silence after which Lookup stops to read a replay: that
	// of a finished turn comes in one go, and one that does not end is asked
	// for by its run.
	lookIdle = time.Second
	// cancelGrace is how long a cancelled turn may take to end.
	cancelGrace = 2 * time.Second
	// staleRun is the age at which a run that calls itself running is not
	// believed: the server ends a stream after 30 minutes, and a run whose
	// process died stays "running" for ever.
	staleRun = time.Hour

	// maxAnswer bounds the body of an answer other than a stream.
	maxAnswer = 64 << 20
	// maxErrorBody is as much of a refusal as is read.
	maxErrorBody = 64 << 10
	// maxPages bounds every listing: a server that never ends one is broken.
	maxPages = 10000
)

// Options of a Client.
type Options struct {
	// BaseURL of the server, http or https, without user, query and fragment.
	BaseURL string
	// Key is sent as bearer token; "" sends none. Space around it is dropped.
	Key string
	// Transport defaults to one of the client's own.
	Transport http.RoundTripper
	// Clock defaults to the real one. It reads dates in answers; deadlines
	// are the contexts'.
	Clock clock.PassiveClock
	// CallTimeout of a single request other than a turn; 0 means a minute.
	CallTimeout time.Duration
	// IdleTimeout is how long a turn's stream may be silent; 0 means 90
	// seconds, four times the server's ping.
	IdleTimeout time.Duration
}

// Client is a [letta.Client].
type Client struct {
	base    string
	key     string
	http    *http.Client
	clock   clock.PassiveClock
	timeout time.Duration
	idle    time.Duration

	mu    sync.Mutex
	sends map[letta.Ref]map[*listening]bool
}

var _ letta.Client = (*Client)(nil)

// New returns a client. It opens no connection. Options that cannot work are
// ErrInvalid, with a text that names the option and not its value.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.BaseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%w: base URL is not http(s)://host", letta.ErrInvalid)
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, fmt.Errorf("%w: base URL has a user, query or fragment", letta.ErrInvalid)
	}
	key := strings.TrimSpace(o.Key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, fmt.Errorf("%w: key has characters that no key has", letta.ErrInvalid)
	}
	c := &Client{
		base:    strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"),
		key:     key,
		clock:   o.Clock,
		timeout: o.CallTimeout,
		idle:    o.IdleTimeout,
		sends:   map[letta.Ref]map[*listening]bool{},
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	if c.timeout <= 0 {
		c.timeout = defaultCallTimeout
	}
	if c.idle <= 0 {
		c.idle = defaultIdleTimeout
	}
	transport := o.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		// One client speaks to one host, and one connection carries one turn.
		t.MaxIdleConnsPerHost = 16
		transport = t
	}
	c.http = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Capabilities implements [letta.Client].
func (c *Client) Capabilities(ctx context.Context) (letta.Capabilities, error) {
	var health struct {
		Version string `json:"version"`
	}
	if err := c.get(ctx, "ask for the version", "/v1/health/", nil, &health); err != nil {
		return letta.Capabilities{}, err
	}
	return letta.Capabilities{
		Backend:          "api",
		Version:          health.Version,
		ReplayByClientID: true,
		FullHistory:      true,
		ReadOnlyBlocks:   true,
	}, nil
}

// Close implements [letta.Client].
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}
