package appserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
)

// raw sends what the client has no call for and returns the answer.
func raw(t *testing.T, url string, body map[string]any) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, url+"/ws", &websocket.DialOptions{ //nolint:bodyclose // of an answer that upgrades
		HTTPHeader: http.Header{"Authorization": {"Bearer " + appservertest.Token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(-1)
	body["request_id"] = "raw"
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(ctx, websocket.MessageText, data); err != nil {
		t.Fatal(err)
	}
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			t.Fatalf("%v: %v", body["type"], err)
		}
		var answer map[string]any
		if json.Unmarshal(data, &answer) == nil && answer["request_id"] == "raw" {
			return answer
		}
	}
}

func compact(t *testing.T, url string, ref letta.Ref) {
	t.Helper()
	answer := raw(t, url, map[string]any{
		"type": "conversation_compact", "conversation_id": ref.ConversationID, "body": map[string]any{"agent_id": ref.AgentID},
	})
	if answer["success"] != true {
		t.Fatalf("compact: %v", answer["error"])
	}
}
