//go:build envtest

package session

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/appserver"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/letta/modelstub"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/tools"
)

// appKeeper is a real App Server behind a wire that can be cut.
type appKeeper struct {
	*appservertest.Server
	wire *wire
	// dir is where the server keeps its state.
	dir string
	// before are the calls of the model in the cells before this one.
	before int
}

// wire passes connections on to a server until they are cut, and nothing while
// it is frozen.
type wire struct {
	net.Listener
	target string
	frozen sync.RWMutex
	mu     sync.Mutex
	open   []net.Conn
}

// direction is one of a connection's two.
type direction struct {
	*wire
	to net.Conn
}

func (d direction) Write(p []byte) (int, error) {
	d.frozen.RLock()
	defer d.frozen.RUnlock()
	return d.to.Write(p)
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, target: target}
	t.Cleanup(func() {
		_ = l.Close() // nobody connects any more
		w.cut()
	})
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", target)
			if err != nil {
				_ = in.Close() // as the server refuses it
				continue
			}
			w.mu.Lock()
			w.open = append(w.open, in, out)
			w.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(direction{w, pair[0]}, pair[1]) // until one side is gone
					_ = pair[0].Close()
					_ = pair[1].Close()
				}()
			}
		}
	}()
	return w
}

// cut cuts all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		_ = c.Close() // it may be closed already
	}
	w.open = nil
}

// startAppKeeper starts an App Server that ends with the test.
func startAppKeeper(t *testing.T) *appKeeper {
	t.Helper()
	install := filepath.Join(tools.Root(), ".tools", "letta")
	if err := appservertest.Installed(install); err != nil {
		t.Skipf("SKIPPED, nothing was tested: %v", err)
	}
	dir := t.TempDir()
	s, err := appservertest.Start(t.Context(), appservertest.Options{Install: install, Dir: dir, Model: modelstub.Options{Respond: lettatest.Script}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return &appKeeper{Server: s, wire: newWire(t, strings.TrimPrefix(s.URL, "ws://")), dir: dir}
}

// appWorld is newWorld with its memory kept by the App Server.
func appWorld(t *testing.T, k *appKeeper) *world {
	t.Helper()
	w := newWorld(t, nil)
	w.app = k
	k.Model.Drop()
	k.before = len(k.Model.Requests())
	url := "ws://" + k.wire.Addr().String()
	// The controller may read no other Secret.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: kube.LettaSecret}}
	w.must(w.admin.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	secret.Annotations[connect.HostsAnnotation] = k.wire.Addr().String()
	secret.StringData = map[string]string{"token": appservertest.Token}
	w.must(w.admin.Update(t.Context(), secret))
	w.change(func(m *v1alpha1.TeamMemory) {
		m.Spec.Letta = v1alpha1.Letta{Backend: v1alpha1.BackendAppServer, BaseURL: url, Insecure: v1alpha1.InsecureAllow, CredentialsSecretRef: &v1alpha1.LocalRef{Name: kube.LettaSecret}}
		m.Spec.Agent.Template.Model = appservertest.Model
	})
	return w
}

// client speaks to the server past the wire.
func (k *appKeeper) client(w *world) *appserver.Client {
	w.t.Helper()
	c, err := appserver.New(appserver.Options{BaseURL: k.URL, Token: appservertest.Token})
	w.must(err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// messages are those of all conversations of this world's agents.
func (k *appKeeper) messages(w *world) []letta.Message {
	w.t.Helper()
	c := k.client(w)
	agents, err := c.AgentsByTag(w.t.Context(), []string{"undersong-memory:" + w.namespace + "/team"})
	w.must(err)
	var all []letta.Message
	for _, a := range agents {
		found, err := c.Conversations(w.t.Context(), a.ID, "")
		w.must(err)
		for _, f := range found {
			for m, err := range c.Messages(w.t.Context(), letta.Ref{AgentID: a.ID, ConversationID: f.ID}, "") {
				w.must(err)
				all = append(all, m)
			}
		}
	}
	return all
}

// heard is what the model was asked, the newest message of each turn. The
// server asks again by itself, which is no send of ours: see told.
func (k *appKeeper) heard() []string {
	var all []string
	for _, r := range k.Model.Requests()[k.before:] {
		if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == "user" && !slices.Contains(all, r.Messages[n-1].Text()) {
			all = append(all, r.Messages[n-1].Text())
		}
	}
	return all
}

// told are the messages that we sent, each once: the server stores one again,
// under an id of its own, when the model's provider refuses it.
func (k *appKeeper) told(w *world) []string {
	var all []string
	for _, m := range k.messages(w) {
		if id := deliveryID.FindStringSubmatch(m.Text); m.Type == letta.UserMessage && (id == nil || strings.HasPrefix(m.OTID, id[1])) {
			all = append(all, m.Text)
		}
	}
	return all
}

// answers counts the model's answers that the server has stored.
func (k *appKeeper) answers(w *world) int {
	n := 0
	for _, m := range k.messages(w) {
		if m.Type == letta.AssistantMessage {
			n++
		}
	}
	return n
}

// remove deletes an agent, for which the client has no call.
func (k *appKeeper) remove(w *world, agentID string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, k.URL+"/ws", &websocket.DialOptions{ //nolint:bodyclose // of an answer that upgrades
		HTTPHeader: http.Header{"Authorization": {"Bearer " + appservertest.Token}},
	})
	w.must(err)
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(-1)
	data, err := json.Marshal(map[string]any{"type": "agent_delete", "request_id": "gone", "agent_id": agentID})
	w.must(err)
	w.must(ws.Write(ctx, websocket.MessageText, data))
	for {
		_, data, err := ws.Read(ctx)
		w.must(err)
		if regexp.MustCompile(`"agent_delete_response"`).Match(data) {
			return
		}
	}
}

// folder is where the server keeps a conversation.
func (k *appKeeper) folder(conversationID string) string {
	return filepath.Join(k.dir, "state", "conversations", base64.RawURLEncoding.EncodeToString([]byte("conversation:"+conversationID)))
}

// appDisasters are the rows of the App Server: its own, and those of the
// stand-in in which Letta itself does nothing.
func appDisasters(k *appKeeper) map[string]disaster {
	rows := map[string]disaster{
		"Letta down": {reason: "it waits", strike: func(w *world) func() {
			k.Kill()
			return func() { w.must(k.Run(w.t.Context())) }
		}},
		"Letta started again": {reason: "what it had begun is looked up", strike: func(w *world) func() {
			k.Kill()
			w.must(k.Run(w.t.Context()))
			return nil
		}},
		"hang": {reason: "what takes too long is cancelled, and looked up", holds: true, team: func(m *v1alpha1.TeamMemory) {
			m.Spec.Delivery.TurnTimeoutSeconds = new(int32(5))
		}, strike: func(w *world) func() {
			release := k.Model.Hold()
			cancelled := testutil.ToFloat64(turns.WithLabelValues(resultCancelled))
			return func() {
				w.reach(func() bool { return testutil.ToFloat64(turns.WithLabelValues(resultCancelled)) > cancelled })
				release()
			}
		}},
		"server hangs": {reason: "no call is waited for without end", strike: func(w *world) func() {
			k.wire.frozen.Lock()
			for range 3 {
				ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second) // as the manager has it
				_, _ = w.r.Reconcile(ctx, ctrl.Request{NamespacedName: w.key})   // suffers
				cancel()
				w.pause()
			}
			k.wire.frozen.Unlock() // and what was asked is answered late
			return nil
		}},
		"answer lost": {reason: "it is looked up", strike: func(*world) func() { k.wire.cut(); return nil }},
		"429 storm": {reason: "it is tried again, later", strike: func(*world) func() {
			for range 16 { // more than the server's patience
				k.Model.Order(modelstub.Step{Status: http.StatusTooManyRequests})
			}
			return nil
		}},
		"agent deleted": {reason: "another one is made", again: true, strike: func(w *world) func() {
			if st := w.get().Status.SyncState; st != nil && st.AgentID != "" {
				k.remove(w, st.AgentID)
			}
			return nil
		}},
		// No command deletes one; a volume that is restored from before it does.
		"conversation deleted": {reason: "another one is made", again: true, strike: func(w *world) func() {
			if st := w.get().Status.SyncState; st != nil && st.ConversationID != "" {
				k.Kill()
				_, err := os.Stat(k.folder(st.ConversationID))
				w.must(err)
				w.must(os.RemoveAll(k.folder(st.ConversationID)))
				w.must(k.Run(w.t.Context()))
			}
			return nil
		}},
	}
	for _, name := range []string{
		"controller killed", "two leaders", "graceful rollout", "API server restarted", "status fell back", "store down", "store refuses",
		"segment missing", "segment corrupt", "bomb", "secret", "clock jump",
	} {
		rows[name] = disasters[name]
	}
	return rows
}

// appCannot are the stand-in's rows, and the cells, that the App Server has no
// form of.
var appCannot = map[string]string{
	"hang/after the turn":          "the model is asked nothing more; see the row server hangs",
	"hang/before the status write": "the turn is over, and the model is asked nothing more; see the row server hangs",

	"answer forgotten":  "a compaction keeps the newest turn listed, and a delivery is the newest; what older ones look up as is a case of the contract's suite, Compaction",
	"cut in the answer": "it is one socket: to cut it in an answer is to lose the answer, see that row",
	"request lost":      "it is one socket: a request is lost with its answer, see that row",
}

// TestFaultMatrixOnTheAppServer is TestFaultMatrix with the real App Server.
// All cells share it, one after the other.
func TestFaultMatrixOnTheAppServer(t *testing.T) {
	if !*wholeMatrix {
		t.Skip("it takes minutes: run with -matrix, as make e2e-matrix does")
	}
	k := startAppKeeper(t)
	rows := appDisasters(k)
	for name := range disasters {
		if _, runs := rows[name]; !runs && appCannot[name] == "" {
			t.Errorf("the row %q is neither run nor excused", name)
		}
	}
	for name, why := range appCannot {
		t.Run(name, func(t *testing.T) { t.Skipf("NOT APPLICABLE to the App Server: %s", why) })
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		for m, moment := range moments {
			if appCannot[name+"/"+moment] != "" {
				continue
			}
			if !t.Run(name+"/"+moment, func(t *testing.T) { strikeAt(t, appWorld(t, k), rows[name], m) }) {
				k = startAppKeeper(t) // who knows what became of this one
				rows = appDisasters(k)
			}
		}
	}
}
