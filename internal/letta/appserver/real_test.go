package appserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/appserver"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/internal/letta/modelstub"
)

func conversation(t *testing.T, c *appserver.Client) letta.Ref {
	t.Helper()
	a, err := c.CreateAgent(t.Context(), letta.AgentSpec{Name: "Team", Model: appservertest.Model, System: "Listen.", Tags: []string{"team:a"}})
	if err != nil {
		t.Fatalf("CreateAgent: %v", err)
	}
	conv, err := c.CreateConversation(t.Context(), a.ID, letta.ConversationSpec{Summary: "session"})
	if err != nil {
		t.Fatalf("CreateConversation: %v", err)
	}
	return letta.Ref{AgentID: a.ID, ConversationID: conv.ID}
}

func lookup(t *testing.T, c *appserver.Client, ref letta.Ref, id string) letta.Delivery {
	t.Helper()
	d, _, err := c.Lookup(t.Context(), ref, id)
	if err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	return d
}

// asked waits until the model was asked.
func asked(t *testing.T, s *appservertest.Server, done <-chan error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.Model.Turns() == 0 {
		select {
		case <-tick.C:
		case err := <-done:
			t.Fatalf("Send ended before the model was asked: %v", err)
		}
	}
}

// TestCancelledWhileTheModelThinks: the server does not end the turn before
// the model has answered, and then lists what came of the answer. For the
// caller it is over, and stays unanswered.
func TestCancelledWhileTheModelThinks(t *testing.T) {
	s := realServer(t)
	c := client(t, s.URL, appservertest.Token)
	ref := conversation(t, c)
	release := s.Model.Hold()
	defer release()
	in := letta.Input{ClientID: uuid.NewString(), Text: "hello"}
	done := make(chan error, 1)
	go func() {
		turn, err := c.Send(context.WithoutCancel(t.Context()), ref, []letta.Input{in}, letta.SendOptions{})
		if turn.StopReason != letta.StopCancelled {
			t.Errorf("stop reason %q, want %q", turn.StopReason, letta.StopCancelled)
		}
		done <- err
	}()
	asked(t, s, done)
	if err := c.Cancel(t.Context(), ref); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, letta.ErrTurnFailed) || errors.Is(err, letta.ErrOutcomeUnknown) {
			t.Errorf("Send: %v, want that the turn failed", err)
		}
	case <-time.NewTimer(20 * time.Second).C:
		t.Fatal("Send waits for a model that never answers")
	}
	release()
	next := letta.Input{ClientID: uuid.NewString(), Text: "and again"}
	turn, err := c.Send(t.Context(), ref, []letta.Input{next}, letta.SendOptions{})
	if err != nil || turn.Text() != "Noted." {
		t.Errorf("Send after the cancelled turn: %q, %v, want the answer", turn.Text(), err)
	}
	if got := lookup(t, c, ref, in.ClientID); got != letta.DeliveryNoReply {
		t.Errorf("Lookup of the cancelled input = %v, want NoReply", got)
	}
	if got := lookup(t, c, ref, next.ClientID); got != letta.DeliveryReplied {
		t.Errorf("Lookup of the next input = %v, want Replied", got)
	}
}

// TestCancelledHalfway: half an answer is listed like a whole one. Whoever
// comes later does not take it for an answer, whether the server is still the
// same or a new one.
func TestCancelledHalfway(t *testing.T) {
	s := realServer(t)
	c := client(t, s.URL, appservertest.Token)
	ref := conversation(t, c)
	release := s.Model.Hold()
	defer release()
	s.Model.Order(modelstub.Step{Text: "Half of what there is to say.", Halt: true})
	in := letta.Input{ClientID: uuid.NewString(), Text: "hello"}
	done := make(chan error, 1)
	go func() {
		_, err := c.Send(context.WithoutCancel(t.Context()), ref, []letta.Input{in}, letta.SendOptions{})
		done <- err
	}()
	asked(t, s, done)
	// Another client cancels, which has not seen the turn begin.
	if err := client(t, s.URL, appservertest.Token).Cancel(t.Context(), ref); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	release()
	if err := <-done; !errors.Is(err, letta.ErrTurnFailed) {
		t.Errorf("Send: %v, want that the turn failed", err)
	}
	next := letta.Input{ClientID: uuid.NewString(), Text: "and again"}
	if _, err := c.Send(t.Context(), ref, []letta.Input{next}, letta.SendOptions{}); err != nil {
		t.Errorf("Send after the cancelled turn: %v", err)
	}
	check := func(when string) {
		t.Helper()
		later := client(t, s.URL, appservertest.Token)
		if got := lookup(t, later, ref, in.ClientID); got != letta.DeliveryNoReply {
			t.Errorf("%s: Lookup of the cancelled input = %v, want NoReply", when, got)
		}
		if got := lookup(t, later, ref, next.ClientID); got != letta.DeliveryReplied {
			t.Errorf("%s: Lookup of the next input = %v, want Replied", when, got)
		}
	}
	check("the same server")
	s.Kill()
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("a new server")
}

// TestKilledInMidTurn: the message is on disk before the model is asked, and
// whoever comes back finds it without an answer.
func TestKilledInMidTurn(t *testing.T) {
	s := realServer(t)
	c := client(t, s.URL, appservertest.Token)
	ref := conversation(t, c)
	release := s.Model.Hold()
	defer release()
	in := letta.Input{ClientID: uuid.NewString(), Text: "hello"}
	done := make(chan error, 1)
	go func() {
		_, err := c.Send(context.WithoutCancel(t.Context()), ref, []letta.Input{in}, letta.SendOptions{})
		done <- err
	}()
	asked(t, s, done)
	s.Kill()
	if err := <-done; !errors.Is(err, letta.ErrOutcomeUnknown) {
		t.Errorf("Send while the server is killed: %v, want that the outcome is unknown", err)
	}
	if _, err := c.Capabilities(t.Context()); !errors.Is(err, letta.ErrUnavailable) {
		t.Errorf("while it is down: %v, want unavailable", err)
	}
	release()
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := lookup(t, c, ref, in.ClientID); got != letta.DeliveryNoReply {
		t.Errorf("Lookup = %v, want NoReply", got)
	}
	next := letta.Input{ClientID: uuid.NewString(), Text: "and again"}
	if _, err := c.Send(t.Context(), ref, []letta.Input{next}, letta.SendOptions{}); err != nil {
		t.Errorf("Send after the start: %v", err)
	}
	if got := lookup(t, c, ref, in.ClientID); got != letta.DeliveryNoReply {
		t.Errorf("Lookup after the next answer = %v, want NoReply still", got)
	}
}

// TestSentAgainAtOnce: within 50 ms the server takes an id for a repeat and
// runs nothing, so that the sender would wait for ever.
func TestSentAgainAtOnce(t *testing.T) {
	s := realServer(t)
	c := client(t, s.URL, appservertest.Token)
	ref := conversation(t, c)
	in := letta.Input{ClientID: uuid.NewString(), Text: "hello"}
	for range 3 {
		if _, err := c.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{Timeout: 30 * time.Second}); err != nil {
			t.Fatalf("Send: %v", err)
		}
	}
	if got := s.Model.Turns(); got != 3 {
		t.Errorf("%d turns, want 3: the server does not know ids of turns that are over", got)
	}
}

// TestDreamsAreOff: an agent that thinks when nobody asked costs money.
func TestDreamsAreOff(t *testing.T) {
	s := realServer(t)
	c := client(t, s.URL, appservertest.Token)
	ref := conversation(t, c)
	answer := raw(t, s.URL, map[string]any{
		"type": "get_reflection_settings", "runtime": map[string]any{"agent_id": ref.AgentID, "conversation_id": ref.ConversationID},
	})
	settings, _ := answer["reflection_settings"].(map[string]any)
	if settings["trigger"] != "off" {
		t.Errorf("reflection settings are %v, want the trigger off", settings)
	}
}

// TestMemoryLeavesNoRoom: over the socket, too, no path leads out of the
// memory's folder.
func TestMemoryLeavesNoRoom(t *testing.T) {
	s := realServer(t)
	c := client(t, s.URL, appservertest.Token)
	ref := conversation(t, c)
	answer := raw(t, s.URL, map[string]any{"type": "read_memory_file", "agent_id": ref.AgentID, "path": "../../../providers/auth.json"})
	if answer["success"] != false {
		t.Errorf("a path out of the memory was read")
	}
	if _, err := c.PutBlock(t.Context(), ref.AgentID, letta.Block{Label: "x", Value: "v", Description: "two\nlines: \"quoted\" #"}, ""); err != nil {
		t.Errorf("PutBlock with a hostile description: %v", err)
	}
	m, err := c.Memory(t.Context(), ref.AgentID)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := m.Block("x"); b.Value != "v" || b.Description != `two lines: "quoted" #` {
		t.Errorf("the block is %+v", b)
	}
}
