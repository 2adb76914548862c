// Package appserver is the back end of internal/letta for Letta's App Server,
// the form of Letta that people run themselves: one socket on which requests,
// answers and events are JSON texts.
//
// It promises what [letta.Client] says, with these means. Each request has an
// id and a deadline, because the server ignores in silence what it does not
// understand. A turn ends with the event turn_finished and with nothing else:
// stop reasons also come at each step inside it. An agent is offered exactly
// one tool, memory; with another it could be talked into reading the server's
// keys by a web page that somebody's session had read. Whatever the server
// asks permission for is denied. Skills are off, and so is dreaming, which
// would call the model when nobody asked.
//
// The server cancels a turn when the last connection that listens to its
// conversation closes. So there are two connections, and the second does
// nothing but listen: when the first is cut the turn goes on, and
// [Client.Lookup] finds it. Both are made when they are needed and made again
// when they are lost; nothing is sent a second time.
//
// Memory is files: the block "brief" is system/brief.md in the agent's git
// repository, with the description above the text, and the memory's revision
// is the last commit. Files whose names are no labels are not shown: an agent
// can be made to write any name.
//
// What the server cannot do is said by Capabilities: a client id that was
// used runs a second turn, and messages that were compacted are listed no
// more. Limits of the length of a block, and blocks that an agent cannot
// change, it does not have.
package appserver

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
	// defaultCallTimeout bounds every request but a turn: making an agent's
	// repository takes seconds on a loaded server.
	defaultCallTimeout = 60 * time.Second
	// writeTimeout is how long the server may take to read what is written.
	writeTimeout = 30 * time.Second
	// pingEvery and pingTimeout find connections that are gone without a
	// word. The server pings as often itself.
	pingEvery   = 30 * time.Second
	pingTimeout = 20 * time.Second
	// idleTimeout is longer than any turn.
	idleTimeout = 2 * time.Hour
	// settle is how long the server needs after a turn to forget its client
	// ids. Within 50 ms it takes one again, says so and runs no turn.
	settle = 100 * time.Millisecond
	// cancelGrace is how long a cancelled turn may take to end. Without an
	// answer of the model the server does not end it at all.
	cancelGrace = 2 * time.Second
	// maxFrame bounds what is read at once. The server's own bound for what
	// it reads is 100 MiB.
	maxFrame = 64 << 20
	// maxRemembered bounds the turns whose end is remembered.
	maxRemembered = 1024
	// protocol is the version of the socket's protocol that is understood.
	protocol = 1
)

// Options of a Client.
type Options struct {
	// BaseURL of the server: ws, wss, http or https and a host; http stands
	// for ws. Without a path it is /ws.
	BaseURL string
	// Token is sent as bearer token; "" sends none. Space around it is
	// dropped.
	Token string
	// Transport defaults to one of the client's own.
	Transport http.RoundTripper
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// CallTimeout of a single request other than a turn; 0 means a minute.
	CallTimeout time.Duration
}

// Client is a [letta.Client].
type Client struct {
	url     string
	token   string
	http    *http.Client
	clock   clock.WithTicker
	timeout time.Duration

	// dial lets one caller at a time make connections, and can be given up
	// on.
	dial chan struct{}

	mu     sync.Mutex
	closed bool
	first  *conn // carries the requests
	second *conn // listens
	busy   map[letta.Ref]bool
	quiet  map[string]bool // agents whose dreaming was switched off
	ended  map[string]ended
}

// ended is how a turn ended that this client saw end.
type ended struct {
	at   time.Time
	turn letta.Turn
}

var _ letta.Client = (*Client)(nil)

// New returns a client. It opens no connection. Options that cannot work are
// ErrInvalid, with a text that names the option and not its value.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.BaseURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%w: base URL is not ws(s)://host", letta.ErrInvalid)
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return nil, fmt.Errorf("%w: base URL is not ws(s)://host", letta.ErrInvalid)
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, fmt.Errorf("%w: base URL has a user, query or fragment", letta.ErrInvalid)
	}
	token := strings.TrimSpace(o.Token)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, fmt.Errorf("%w: token has characters that no token has", letta.ErrInvalid)
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	if path == "" {
		path = "/ws"
	}
	c := &Client{
		url:     u.Scheme + "://" + u.Host + path,
		token:   token,
		clock:   o.Clock,
		timeout: o.CallTimeout,
		dial:    make(chan struct{}, 1),
		busy:    map[letta.Ref]bool{},
		quiet:   map[string]bool{},
		ended:   map[string]ended{},
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	if c.timeout <= 0 {
		c.timeout = defaultCallTimeout
	}
	transport := o.Transport
	if transport == nil {
		transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	c.http = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Capabilities implements [letta.Client].
func (c *Client) Capabilities(ctx context.Context) (letta.Capabilities, error) {
	conn, err := c.connect(ctx, "ask for the version")
	if err != nil {
		return letta.Capabilities{}, err
	}
	return letta.Capabilities{Backend: "appserver", Version: conn.version, BlockHistory: true}, nil
}

// Close implements [letta.Client]. Turns under way are cancelled by the
// server, unless another client listens to their conversations.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	conns := []*conn{c.first, c.second}
	c.first, c.second = nil, nil
	c.mu.Unlock()
	for _, conn := range conns {
		if conn != nil {
			conn.lose()
		}
	}
	c.http.CloseIdleConnections()
	return nil
}

// connect returns the first connection, and makes it if there is none.
func (c *Client) connect(ctx context.Context, op string) (*conn, error) {
	return c.ensure(ctx, op, &c.first)
}

// ensure returns the connection in the slot, and makes it if there is none or
// if it is lost.
func (c *Client) ensure(ctx context.Context, op string, slot **conn) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.dial <- struct{}{}:
		defer func() { <-c.dial }()
	case <-ctx.Done():
		return nil, failed(ctx, op, nil, false)
	}
	c.mu.Lock()
	have, closed := *slot, c.closed
	c.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("%s: %w: the client is closed", op, letta.ErrUnavailable)
	}
	if have != nil && !have.lost() {
		return have, nil
	}
	made, err := c.open(ctx, op)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		made.lose()
		return nil, fmt.Errorf("%s: %w: the client is closed", op, letta.ErrUnavailable)
	}
	*slot = made
	return made, nil
}

// request sends one request over the first connection and decodes its answer
// into out. effect: the server does something that should not be done twice.
func (c *Client) request(ctx context.Context, op string, effect bool, body map[string]any, out any) error {
	conn, err := c.connect(ctx, op)
	if err != nil {
		return err
	}
	return conn.call(ctx, op, effect, body, out)
}
