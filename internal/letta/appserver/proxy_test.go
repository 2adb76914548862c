package appserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// proxy stands between client and server, and loses what it is told to.
type proxy struct {
	target string
	mu     sync.Mutex
	faults []fault
}

// fault strikes at the next text of a kind.
type fault struct {
	// request is the kind of a client's text.
	request string
	// act: "drop" loses the connection instead, "lose" after passing it on,
	// "hang" keeps the text, "cut" loses the connection at the next event of
	// the turn.
	act string
}

// startProxy serves until the test ends and returns its URL.
func startProxy(t *testing.T, target string) (*proxy, string) {
	t.Helper()
	p := &proxy{target: target}
	srv := httptest.NewServer(p)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.faults); n > 0 {
			t.Errorf("%d ordered faults did not strike", n)
		}
	})
	return p, "ws" + strings.TrimPrefix(srv.URL, "http")
}

func (p *proxy) order(request, act string) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = append(p.faults, fault{request, act})
	}
}

// strike takes the fault that a text of the kind meets.
func (p *proxy) strike(kind string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.faults {
		if f.request == kind {
			p.faults = append(p.faults[:i], p.faults[i+1:]...)
			return f.act
		}
	}
	return ""
}

func kindOf(data []byte) string {
	var f struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(data, &f) != nil {
		return ""
	}
	return f.Type
}

// ServeHTTP passes texts on in both directions.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	server, res, err := websocket.Dial(ctx, p.target+r.URL.Path, &websocket.DialOptions{ //nolint:bodyclose // of no answer that upgrades
		HTTPHeader: http.Header{"Authorization": r.Header.Values("Authorization")},
	})
	if err != nil {
		if res != nil {
			w.WriteHeader(res.StatusCode)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = server.CloseNow() }()
	client, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = client.CloseNow() }()
	client.SetReadLimit(-1)
	server.SetReadLimit(-1)

	var mu sync.Mutex
	cut := false
	go func() {
		defer cancel()
		for {
			kind, data, err := server.Read(ctx)
			if err != nil {
				return
			}
			mu.Lock()
			stop := cut && kindOf(data) == "stream_delta"
			mu.Unlock()
			if stop || client.Write(ctx, kind, data) != nil {
				return
			}
		}
	}()
	for {
		kind, data, err := client.Read(ctx)
		if err != nil {
			return
		}
		act := p.strike(kindOf(data))
		if act == "drop" {
			return
		}
		if act == "cut" {
			mu.Lock()
			cut = true
			mu.Unlock()
		}
		if act == "hang" {
			continue
		}
		if server.Write(ctx, kind, data) != nil || act == "lose" {
			return
		}
	}
}
