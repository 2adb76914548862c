package contract

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/internal/letta"
)

func (s *suite) send() {
	t := s.t
	ref := s.conversation(t)
	in := input()
	turn := s.mustSend(t, ref, in)
	if turn.StopReason != letta.StopEndTurn || turn.RunID == "" || turn.Text() == "" || turn.LastMessageID() == "" {
		t.Errorf("Send = %+v, want a run, an answer and %s", turn, letta.StopEndTurn)
	}
	if !turn.Usage.Reported || turn.Usage.TotalTokens <= 0 {
		t.Errorf("usage = %+v, want it reported", turn.Usage)
	}
	found := s.delivered(t, ref, in.ClientID, letta.DeliveryReplied)
	if diff := cmp.Diff(turn.Text(), found.Text()); diff != "" {
		t.Errorf("the reply that Lookup finds: -sent +found:\n%s", diff)
	}
	if diff := cmp.Diff(turn.LastMessageID(), found.LastMessageID()); diff != "" {
		t.Errorf("the last message that Lookup finds: -sent +found:\n%s", diff)
	}
	var texts, answers []string
	for _, m := range s.collect(t, ref, "") {
		switch {
		case m.Type == letta.UserMessage && m.OTID == in.ClientID:
			texts = append(texts, m.Text)
		case m.Type == letta.AssistantMessage:
			answers = append(answers, m.Text)
		}
	}
	if diff := cmp.Diff([]string{in.Text}, texts); diff != "" {
		t.Errorf("our message in the listing: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{turn.Text()}, answers); diff != "" {
		t.Errorf("the answer in the listing: -want +got:\n%s", diff)
	}
	s.turns(t, 1)
}

func (s *suite) sendRefusals() {
	t := s.t
	ref := s.conversation(t)
	in := input()
	cases := map[string]struct {
		reason string
		ref    letta.Ref
		in     []letta.Input
		want   error
	}{
		"Nothing":   {"an empty turn would cost a model call", ref, nil, letta.ErrInvalid},
		"Empty":     {"an empty text too", ref, []letta.Input{{ClientID: in.ClientID}}, letta.ErrInvalid},
		"NoID":      {"without an id it can never be looked up", ref, []letta.Input{{Text: "x"}}, letta.ErrInvalid},
		"ComposeID": {"a separator of the server's could make two ids look like one", ref, []letta.Input{{ClientID: "a|b", Text: "x"}}, letta.ErrInvalid},
		"SameID":    {"two messages under one id cannot be told apart", ref, []letta.Input{in, in}, letta.ErrInvalid},
		"NoUTF8":    {"JSON would change the text", ref, []letta.Input{{ClientID: in.ClientID, Text: "\xff"}}, letta.ErrInvalid},
		"Large":     {"the process has a bound", ref, []letta.Input{{ClientID: in.ClientID, Text: strings.Repeat("x", letta.MaxText+1)}}, letta.ErrInvalid},
		"BadRef":    {"an id is one path segment", letta.Ref{AgentID: ref.AgentID, ConversationID: "../agents"}, []letta.Input{in}, letta.ErrInvalid},
		"Missing": {
			"no such conversation",
			letta.Ref{AgentID: ref.AgentID, ConversationID: "conv-00000000-0000-4000-8000-000000000000"},
			[]letta.Input{in},
			letta.ErrNotFound,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := s.Client.Send(t.Context(), tc.ref, tc.in, letta.SendOptions{})
			s.is(t, err, tc.want)
			isNot(t, err, letta.ErrOutcomeUnknown)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
	s.turns(t, 0)
}

func (s *suite) sendSeveral() {
	t := s.t
	ref := s.conversation(t)
	first, second := input(), input()
	turn := s.mustSend(t, ref, first, second)
	s.turns(t, 1)
	for _, in := range []letta.Input{first, second} {
		found := s.delivered(t, ref, in.ClientID, letta.DeliveryReplied)
		if diff := cmp.Diff(turn.Text(), found.Text()); diff != "" {
			t.Errorf("one answer for both: -sent +found:\n%s", diff)
		}
	}
}

func (s *suite) sendHuge() {
	t := s.t
	ref := s.conversation(t)
	in := input()
	size := 1 << 20
	if s.HugeBytes > 0 {
		size = s.HugeBytes
	}
	in.Text = strings.Repeat("All work & no play. ☃\n", size/24)
	s.mustSend(t, ref, in)
	for _, m := range s.collect(t, ref, "") {
		if m.OTID == in.ClientID && m.Text != in.Text {
			t.Errorf("a message of %d bytes is listed with %d", len(in.Text), len(m.Text))
		}
	}
	s.delivered(t, ref, in.ClientID, letta.DeliveryReplied)
}

func (s *suite) sendParallel() {
	t := s.t
	a := s.agent(t)
	var wg sync.WaitGroup
	for range 8 {
		c, err := s.Client.CreateConversation(t.Context(), a.ID, letta.ConversationSpec{Summary: "session " + uuid.NewString()})
		if err != nil {
			t.Fatalf("CreateConversation: %v", err)
		}
		ref := letta.Ref{AgentID: a.ID, ConversationID: c.ID}
		wg.Go(func() {
			if _, err := s.Client.Send(t.Context(), ref, []letta.Input{input()}, letta.SendOptions{}); err != nil {
				t.Errorf("conversations of one agent run side by side: %v", err)
			}
		})
	}
	wg.Wait()
	s.turns(t, 8)
}

func (s *suite) sendAgain() {
	t := s.t
	caps, err := s.Client.Capabilities(t.Context())
	if err != nil {
		t.Fatalf("Capabilities: %v", err)
	}
	need(t, "replay by client id", caps.ReplayByClientID)
	ref := s.conversation(t)
	in := input()
	first := s.mustSend(t, ref, in)
	second := s.mustSend(t, ref, in)
	s.turns(t, 1)
	if diff := cmp.Diff(first.Text(), second.Text()); diff != "" {
		t.Errorf("the replay: -first +second:\n%s", diff)
	}
	need(t, "end the window", s.ExpireReplays != nil)
	s.ExpireReplays()
	s.mustSend(t, ref, in)
	s.turns(t, 2) // the reason why callers look up before they send again
}

// start sends in the background.
func (s *suite) start(ctx context.Context, ref letta.Ref, in letta.Input) <-chan result {
	out := make(chan result, 1)
	go func() {
		turn, err := s.Client.Send(ctx, ref, []letta.Input{in}, letta.SendOptions{})
		out <- result{turn, err}
	}()
	return out
}

type result struct {
	turn letta.Turn
	err  error
}

func (s *suite) busy() {
	t := s.t
	need(t, "hold turns", s.Hold != nil)
	ref := s.conversation(t)
	release := s.Hold()
	first, second := input(), input()
	done := s.start(t.Context(), ref, first)
	running := s.becomes(t, ref, first.ClientID, letta.DeliveryRunning)

	_, err := s.Client.Send(t.Context(), ref, []letta.Input{second}, letta.SendOptions{})
	var busy *letta.BusyError
	s.is(t, err)
	isNot(t, err, letta.ErrOutcomeUnknown)
	if !errors.As(err, &busy) {
		t.Fatalf("Send beside a running turn: %v, want a BusyError", err)
	}
	if busy.RunID != running.RunID {
		t.Errorf("BusyError.RunID = %q, want %q", busy.RunID, running.RunID)
	}
	release()
	if r := <-done; r.err != nil {
		t.Errorf("the first turn: %v", r.err)
	}
	s.delivered(t, ref, first.ClientID, letta.DeliveryReplied)
	s.delivered(t, ref, second.ClientID, letta.DeliveryAbsent)
	s.turns(t, 1)
	s.mustSend(t, ref, second)
}

func (s *suite) turnCancelled() {
	t := s.t
	need(t, "hold turns", s.Hold != nil)
	ref := s.conversation(t)
	if err := s.Client.Cancel(t.Context(), ref); err != nil {
		t.Errorf("Cancel while nothing runs: %v", err)
	}
	release := s.Hold()
	defer release()
	in := input()
	done := s.start(t.Context(), ref, in)
	s.becomes(t, ref, in.ClientID, letta.DeliveryRunning)
	if err := s.Client.Cancel(t.Context(), ref); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
	r := <-done
	s.is(t, r.err, letta.ErrTurnFailed)
	isNot(t, r.err, letta.ErrOutcomeUnknown)
	if r.turn.StopReason != letta.StopCancelled {
		t.Errorf("stop reason %q, want %q", r.turn.StopReason, letta.StopCancelled)
	}
	got, _ := s.lookup(t, ref, in.ClientID)
	if got != letta.DeliveryAbsent && got != letta.DeliveryNoReply {
		t.Errorf("Lookup of a cancelled turn = %v, want Absent or NoReply", got)
	}
	release()
	s.mustSend(t, ref, input()) // the conversation is free again
}

func (s *suite) turnNeverEnds() {
	t := s.t
	need(t, "hold turns", s.Hold != nil)
	ref := s.conversation(t)
	release := s.Hold()
	defer release()
	in := input()
	_, err := s.Client.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{Timeout: max(300*time.Millisecond, s.CallTimeout/10)})
	s.is(t, err, letta.ErrOutcomeUnknown)
	turn := s.delivered(t, ref, in.ClientID, letta.DeliveryRunning)
	if turn.StopReason != "" || len(turn.Reply) > 0 {
		t.Errorf("a running turn = %+v, want neither end nor reply", turn)
	}
	release()
	s.becomes(t, ref, in.ClientID, letta.DeliveryReplied)
	s.turns(t, 1)
}

// callerLeaves: the turn of a caller whose context ends goes on, or is
// cancelled by the server; in no case is it as if nothing had been sent.
func (s *suite) callerLeaves() {
	t := s.t
	need(t, "hold turns", s.Hold != nil)
	ref := s.conversation(t)
	release := s.Hold()
	defer release()
	in := input()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := s.start(ctx, ref, in)
	s.becomes(t, ref, in.ClientID, letta.DeliveryRunning)
	cancel()
	r := <-done
	s.is(t, r.err, letta.ErrOutcomeUnknown, context.Canceled)

	_, err := s.Client.Send(ctx, ref, []letta.Input{input()}, letta.SendOptions{})
	s.is(t, err, context.Canceled)
	isNot(t, err, letta.ErrOutcomeUnknown) // it never went out
	s.turns(t, 1)
}
