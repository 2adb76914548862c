package appserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/internal/letta"
)

// conn is one connection. A goroutine of its own always reads: answers go to
// their callers, events into the state of their conversation.
type conn struct {
	ws      *websocket.Conn
	clock   clock.WithTicker
	timeout time.Duration
	version string // of the server

	gone chan struct{} // closed when the connection is lost
	stop func()

	mu      sync.Mutex
	next    int
	used    time.Time // when the last request was made
	waiting map[string]chan json.RawMessage
	chats   map[letta.Ref]*chat
}

// frame is what all answers and events have.
type frame struct {
	Type      string `json:"type"`
	RequestID string `json:"request_id"`
	Runtime   *scope `json:"runtime"`
}

// scope names a conversation on the wire.
type scope struct {
	AgentID        string `json:"agent_id"`
	ConversationID string `json:"conversation_id"`
}

func wireRef(r letta.Ref) scope { return scope{r.AgentID, r.ConversationID} }

// open makes a connection and asks who is there.
func (c *Client) open(ctx context.Context, op string) (*conn, error) {
	header := http.Header{}
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token)
	}
	ws, res, err := websocket.Dial(ctx, c.url, &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: header}) //nolint:bodyclose // the library closes it and keeps its beginning
	if err != nil {
		if res != nil && res.StatusCode != 0 && res.StatusCode != http.StatusSwitchingProtocols {
			return nil, refusedDial(op, res)
		}
		return nil, failed(ctx, op, err, false)
	}
	ws.SetReadLimit(maxFrame)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &conn{
		ws: ws, clock: c.clock, timeout: c.timeout, gone: make(chan struct{}), stop: stop, used: c.clock.Now(),
		waiting: map[string]chan json.RawMessage{}, chats: map[letta.Ref]*chat{},
	}
	go k.read(life)
	go k.ping(life)
	var info struct {
		Backend  string `json:"backend"`
		Version  string `json:"letta_code_version"`
		Protocol int    `json:"protocol_version"`
	}
	if err := k.call(ctx, op, false, map[string]any{"type": "app_server_info"}, &info); err != nil {
		k.lose()
		return nil, err
	}
	if info.Protocol != protocol {
		k.lose()
		return nil, fmt.Errorf("%s: %w: the App Server speaks another version of the protocol", op, letta.ErrInvalid)
	}
	k.version = info.Version
	return k, nil
}

// lose ends the connection.
func (k *conn) lose() {
	k.stop()
	_ = k.ws.CloseNow() // there is nobody to tell
}

func (k *conn) lost() bool {
	select {
	case <-k.gone:
		return true
	default:
		return false
	}
}

// read reads until the connection is lost.
func (k *conn) read(ctx context.Context) {
	defer close(k.gone)
	defer k.lose()
	for {
		kind, data, err := k.ws.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageText {
			k.take(ctx, data)
		}
	}
}

// ping loses the connection when the server does not answer, and when nobody
// has asked for anything in a long time: clients are replaced when a Secret
// changes, and a turn of the old one may go on, so that nobody closes it.
func (k *conn) ping(ctx context.Context) {
	tick := k.clock.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		k.mu.Lock()
		idle := k.clock.Since(k.used)
		k.mu.Unlock()
		if idle > idleTimeout {
			k.lose()
			return
		}
		short, cancel := context.WithTimeout(ctx, pingTimeout)
		err := k.ws.Ping(short)
		cancel()
		if err != nil {
			k.lose()
			return
		}
	}
}

// take sorts in what was read. It never waits.
func (k *conn) take(ctx context.Context, data []byte) {
	var f frame
	if lenient(data, &f) != nil {
		return // not ours to understand
	}
	if f.Type == "control_request" {
		go k.deny(ctx, f)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if waiting, ok := k.waiting[f.RequestID]; ok && f.RequestID != "" {
		select {
		case waiting <- data:
		default: // more answers than anybody waits for
		}
		return
	}
	if f.Runtime == nil {
		return
	}
	if state, ok := k.chats[letta.Ref{AgentID: f.Runtime.AgentID, ConversationID: f.Runtime.ConversationID}]; ok {
		state.take(f.Type, data)
	}
}

// deny answers a question for permission. Nobody is there to be asked, and an
// agent that waits for an answer waits for ever.
func (k *conn) deny(ctx context.Context, f frame) {
	if f.Runtime == nil {
		return
	}
	// A connection that cannot be written to is lost, and noticed by reading.
	_ = k.write(ctx, map[string]any{
		"type": "input", "request_id": k.id(), "runtime": f.Runtime,
		"payload": map[string]any{
			"kind": "approval_response", "request_id": f.RequestID,
			"decision": map[string]any{"behavior": "deny", "message": "Not allowed here."},
		},
	})
}

func (k *conn) id() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next++
	k.used = k.clock.Now()
	return "undersong-" + strconv.Itoa(k.next)
}

// write sends one text. Its deadline is not the caller's: a text that is cut
// off takes the whole connection with it.
func (k *conn) write(ctx context.Context, body map[string]any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	return k.ws.Write(ctx, websocket.MessageText, data)
}

// maxParts is how many answers to one request can wait to be read.
const maxParts = 4096

// ask sends a request and returns the channel of its answers. end must be
// called. An error says that nothing was sent, unless it is
// ErrOutcomeUnknown.
func (k *conn) ask(ctx context.Context, op string, effect bool, body map[string]any) (answers <-chan json.RawMessage, end func(), err error) {
	id := k.id()
	body["request_id"] = id
	ch := make(chan json.RawMessage, maxParts)
	k.mu.Lock()
	k.waiting[id] = ch
	k.mu.Unlock()
	end = func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.waiting, id)
	}
	if ctx.Err() != nil {
		end()
		return nil, nil, failed(ctx, op, nil, false)
	}
	if err := k.write(ctx, body); err != nil {
		end()
		k.lose()
		return nil, nil, failed(ctx, op, errLost, effect)
	}
	return ch, end, nil
}

// call sends a request and decodes its one answer into out, if not nil.
func (k *conn) call(ctx context.Context, op string, effect bool, body map[string]any, out any) error {
	return k.parts(ctx, op, effect, body, func(data json.RawMessage) (bool, error) {
		if out == nil {
			return true, nil
		}
		return true, decode(op, data, out)
	})
}

// parts sends a request and gives each of its answers to take, until that has
// enough.
func (k *conn) parts(ctx context.Context, op string, effect bool, body map[string]any, take func(json.RawMessage) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	answers, end, err := k.ask(ctx, op, effect, body)
	if err != nil {
		return err
	}
	defer end()
	for {
		data, err := k.await(ctx, op, effect, answers)
		if err != nil {
			return err
		}
		if err := refused(op, data); err != nil {
			return err
		}
		if enough, err := take(data); enough || err != nil {
			return err
		}
	}
}

// await takes the next answer.
func (k *conn) await(ctx context.Context, op string, effect bool, answers <-chan json.RawMessage) (json.RawMessage, error) {
	select {
	case data := <-answers:
		return data, nil
	case <-ctx.Done():
		return nil, failed(ctx, op, nil, effect)
	case <-k.gone:
		select {
		case data := <-answers: // it came before the end
			return data, nil
		default:
			return nil, failed(ctx, op, errLost, effect)
		}
	}
}

// subscribe makes the server send the events of a conversation. It answers
// when it has told how things stand.
func (k *conn) subscribe(ctx context.Context, op string, ref letta.Ref) error {
	return k.call(ctx, op, false, map[string]any{
		"type": "runtime_start", "agent_id": ref.AgentID, "conversation_id": ref.ConversationID,
		"mode": "standard", "skill_sources": []string{}, "wait_for_replay": true,
	}, nil)
}

// start listens to a conversation and returns what the server says of it. It
// asks each time: what was heard may be old. leave must be called; without an
// error only.
func (k *conn) start(ctx context.Context, op string, ref letta.Ref) (state *chat, leave func(), err error) {
	k.mu.Lock()
	state, ok := k.chats[ref]
	if !ok {
		state = &chat{byRun: map[string][]string{}}
		k.chats[ref] = state
	}
	state.uses++
	k.mu.Unlock()
	leave = func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if state.uses--; state.uses == 0 {
			delete(k.chats, ref) // there are as many conversations as sessions
		}
	}
	if err := k.subscribe(ctx, op, ref); err != nil {
		leave()
		return nil, nil, err
	}
	return state, leave, nil
}

// look reads the state of a conversation under the connection's lock.
func (k *conn) look(state *chat) chatView {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := chatView{running: state.running(), runs: slices.Clone(state.active), byRun: make(map[string][]string, len(state.byRun)), queued: slices.Clone(state.queued)}
	if len(state.active) > 0 {
		v.runID = state.active[0]
	}
	for run, ids := range state.byRun {
		v.byRun[run] = slices.Clone(ids)
	}
	return v
}

// lenient decodes and lets fields of an unexpected type be.
func lenient(data []byte, out any) error {
	err := json.Unmarshal(data, out)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}
