package contract

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/internal/letta"
)

func (s *suite) lostAnswer() {
	t := s.t
	need(t, "lose an answer", s.LoseAnswer != nil)
	ref := s.conversation(t)
	in := input()
	s.LoseAnswer()
	_, err := s.Client.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{})
	s.is(t, err, letta.ErrOutcomeUnknown)
	turn := s.becomes(t, ref, in.ClientID, letta.DeliveryReplied)
	if turn.Text() == "" || turn.LastMessageID() == "" {
		t.Errorf("the turn that was found = %+v, want its reply", turn)
	}
	s.turns(t, 1)
}

func (s *suite) cutAnswer() {
	t := s.t
	need(t, "cut an answer", s.CutAnswer != nil)
	ref := s.conversation(t)
	in := input()
	s.CutAnswer()
	_, err := s.Client.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{})
	s.is(t, err, letta.ErrOutcomeUnknown)
	s.becomes(t, ref, in.ClientID, letta.DeliveryReplied)
	s.turns(t, 1)
}

func (s *suite) droppedRequest() {
	t := s.t
	need(t, "drop a request", s.DropRequest != nil)
	ref := s.conversation(t)
	in := input()
	s.DropRequest()
	_, err := s.Client.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{})
	s.is(t, err, letta.ErrOutcomeUnknown)
	s.delivered(t, ref, in.ClientID, letta.DeliveryAbsent)
	s.turns(t, 0) // nothing was repeated behind our back
	s.mustSend(t, ref, in)
	s.turns(t, 1)
}

// crash: after a crash in mid-turn the input is found without an answer, or
// not at all, and the conversation goes on. A server may not notice that
// nobody works on the turn any more: then it runs until it is cancelled.
func (s *suite) crash() {
	t := s.t
	need(t, "kill the server", s.Crash != nil && s.Hold != nil)
	ref := s.conversation(t)
	release := s.Hold()
	defer release()
	in := input()
	done := s.start(t.Context(), ref, in)
	s.becomes(t, ref, in.ClientID, letta.DeliveryRunning)
	restart := s.Crash(t)
	r := <-done
	s.is(t, r.err, letta.ErrOutcomeUnknown)
	_, _, err := s.Client.Lookup(t.Context(), ref, in.ClientID)
	s.is(t, err, letta.ErrUnavailable)
	release()
	restart()
	got, _ := s.lookup(t, ref, in.ClientID)
	if got == letta.DeliveryRunning {
		if err := s.Client.Cancel(t.Context(), ref); err != nil {
			t.Fatalf("Cancel: %v", err)
		}
		got, _ = s.lookup(t, ref, in.ClientID)
	}
	if got != letta.DeliveryAbsent && got != letta.DeliveryNoReply {
		t.Errorf("Lookup after a crash = %v, want Absent or NoReply", got)
	}
	next := input()
	s.mustSend(t, ref, next)
	s.delivered(t, ref, next.ClientID, letta.DeliveryReplied)
	s.delivered(t, ref, in.ClientID, got)
}

func (s *suite) turnFails() {
	t := s.t
	need(t, "fail a turn", s.FailTurn != nil)
	ref := s.conversation(t)
	in := input()
	s.FailTurn(Failure{})
	turn, err := s.Client.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{})
	s.is(t, err, letta.ErrTurnFailed)
	isNot(t, err, letta.ErrOutcomeUnknown)
	if turn.RunID == "" || turn.StopReason == "" || turn.StopReason == letta.StopEndTurn {
		t.Errorf("the failed turn = %+v, want a run and why it stopped", turn)
	}
	want := letta.DeliveryAbsent
	if s.StoresFirst {
		want = letta.DeliveryNoReply
	}
	found := s.delivered(t, ref, in.ClientID, want)
	if found.RunID != turn.RunID {
		t.Errorf("Lookup knows run %q, want %q: it says that the id is used up", found.RunID, turn.RunID)
	}
	caps, err := s.Client.Capabilities(t.Context())
	if err != nil {
		t.Fatalf("Capabilities: %v", err)
	}
	if caps.ReplayByClientID {
		_, err := s.Client.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{})
		s.is(t, err, letta.ErrTurnFailed) // the same failure, replayed
		s.turns(t, 1)
	}
	s.mustSend(t, ref, input())
}

func (s *suite) turnFailsStored() {
	t := s.t
	need(t, "fail a turn", s.FailTurn != nil)
	ref := s.conversation(t)
	in := input()
	s.FailTurn(Failure{Stored: true})
	_, err := s.Client.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{})
	s.is(t, err, letta.ErrTurnFailed)
	s.delivered(t, ref, in.ClientID, letta.DeliveryNoReply)
	s.mustSend(t, ref, input())
	// The answer to the next message is not the answer to this one.
	s.delivered(t, ref, in.ClientID, letta.DeliveryNoReply)
	if s.ExpireReplays != nil {
		s.ExpireReplays()
		s.delivered(t, ref, in.ClientID, letta.DeliveryNoReply)
	}
}

func (s *suite) turnFailsRateLimited() {
	t := s.t
	need(t, "fail a turn", s.FailTurn != nil)
	ref := s.conversation(t)
	s.FailTurn(Failure{RateLimit: true})
	_, err := s.Client.Send(t.Context(), ref, []letta.Input{input()}, letta.SendOptions{})
	s.is(t, err, letta.ErrTurnFailed, letta.ErrUnavailable)
	var retry *letta.RetryError
	if !errors.As(err, &retry) || !retry.Limited {
		t.Errorf("error %v, want a RetryError that says limited", err)
	}
}

func (s *suite) turnWantsApproval() {
	t := s.t
	need(t, "fail a turn", s.FailTurn != nil)
	ref := s.conversation(t)
	s.FailTurn(Failure{Stored: true, Approval: true})
	_, err := s.Client.Send(t.Context(), ref, []letta.Input{input()}, letta.SendOptions{})
	s.is(t, err, letta.ErrTurnFailed, letta.ErrApprovalPending)
	_, err = s.Client.Send(t.Context(), ref, []letta.Input{input()}, letta.SendOptions{})
	s.is(t, err, letta.ErrApprovalPending)
	isNot(t, err, letta.ErrTurnFailed)
	s.turns(t, 1)
}

func (s *suite) turnEndsSilently() {
	t := s.t
	need(t, "fail a turn", s.FailTurn != nil)
	ref := s.conversation(t)
	in := input()
	s.FailTurn(Failure{Silent: true})
	_, err := s.Client.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{})
	s.is(t, err, letta.ErrOutcomeUnknown)
	s.delivered(t, ref, in.ClientID, letta.DeliveryAbsent)
}

func (s *suite) lookupAbsent() {
	t := s.t
	ref := s.conversation(t)
	turn := s.delivered(t, ref, input().ClientID, letta.DeliveryAbsent)
	if diff := cmp.Diff(letta.Turn{}, turn); diff != "" {
		t.Errorf("the turn of nothing: -want +got:\n%s", diff)
	}
	s.mustSend(t, ref, input())
	s.delivered(t, ref, input().ClientID, letta.DeliveryAbsent)
}

func (s *suite) lookupAfterWindow() {
	t := s.t
	need(t, "end the window", s.ExpireReplays != nil)
	ref := s.conversation(t)
	ins := []letta.Input{input(), input(), input()}
	var turns []letta.Turn
	for _, in := range ins {
		turns = append(turns, s.mustSend(t, ref, in))
	}
	s.ExpireReplays()
	for i, in := range ins {
		found := s.delivered(t, ref, in.ClientID, letta.DeliveryReplied)
		if diff := cmp.Diff(turns[i].LastMessageID(), found.LastMessageID()); diff != "" {
			t.Errorf("the reply to message %d, from the listing: -sent +found:\n%s", i, diff)
		}
	}
	s.delivered(t, ref, input().ClientID, letta.DeliveryAbsent)
}

func (s *suite) compaction() {
	t := s.t
	need(t, "compact", s.Compact != nil)
	caps, err := s.Client.Capabilities(t.Context())
	if err != nil {
		t.Fatalf("Capabilities: %v", err)
	}
	ref := s.conversation(t)
	var ins []letta.Input
	var turns []letta.Turn
	many := 40
	if s.Compacted > 0 {
		many = s.Compacted
	}
	for range 4 {
		for range many { // several pages
			in := input()
			ins = append(ins, in)
			turns = append(turns, s.mustSend(t, ref, in))
		}
		s.Compact(t, ref)
	}
	if s.ExpireReplays != nil {
		s.ExpireReplays() // so that the listing has to tell
	}
	if caps.FullHistory {
		listed := map[string]bool{}
		for _, m := range s.collect(t, ref, "") {
			listed[m.OTID] = true
		}
		for i, in := range ins {
			if !listed[in.ClientID] {
				t.Errorf("message %d is not listed after compactions", i)
			}
		}
		for _, i := range []int{0, 1, many - 1, many, 2*many - 1, 5 * many / 2, 4*many - 1} {
			found := s.delivered(t, ref, ins[i].ClientID, letta.DeliveryReplied)
			if diff := cmp.Diff(turns[i].LastMessageID(), found.LastMessageID()); diff != "" {
				t.Errorf("the reply to message %d: -sent +found:\n%s", i, diff)
			}
		}
	}
	s.delivered(t, ref, input().ClientID, letta.DeliveryUnknown)
}

func (s *suite) compactionAfterCursor() {
	t := s.t
	need(t, "compact", s.Compact != nil)
	ref := s.conversation(t)
	for range 3 {
		s.mustSend(t, ref, input())
	}
	before := s.collect(t, ref, "")
	cursor := before[len(before)-1].ID
	if got := s.collect(t, ref, cursor); len(got) != 0 {
		t.Errorf("behind the last message are %d", len(got))
	}
	// Messages that are kept by a compaction get positions before a cursor
	// that is not.
	var later []letta.Input
	for range 7 {
		later = append(later, input())
		s.mustSend(t, ref, later[len(later)-1])
	}
	s.Compact(t, ref)
	later = append(later, input())
	s.mustSend(t, ref, later[len(later)-1])
	behind := map[string]bool{}
	for _, m := range s.collect(t, ref, cursor) {
		behind[m.OTID] = true
	}
	caps, err := s.Client.Capabilities(t.Context())
	if err != nil {
		t.Fatalf("Capabilities: %v", err)
	}
	if !caps.FullHistory {
		later = later[len(later)-1:] // the others may be compacted away
	}
	for i, in := range later {
		if !behind[in.ClientID] {
			t.Errorf("message %d after the cursor is not listed behind it after a compaction", i)
		}
	}
}

func (s *suite) rateLimit() {
	t := s.t
	need(t, "refuse", s.RefuseRead != nil && s.RefuseSend != nil)
	ref := s.conversation(t)
	date := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := map[string]struct {
		reason string
		header http.Header
		want   time.Duration
	}{
		"None":     {"the server does not say", nil, 0},
		"Seconds":  {"the standard's first form", http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		"Fraction": {"some servers send fractions", http.Header{"Retry-After": {"1.5"}}, 1500 * time.Millisecond},
		"Milli":    {"Letta's own header wins", http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {"250"}}, 250 * time.Millisecond},
		"Date": {
			"the standard's second form, by the server's own clock",
			http.Header{"Retry-After": {date.Add(90 * time.Second).Format(http.TimeFormat)}, "Date": {date.Format(http.TimeFormat)}},
			90 * time.Second,
		},
		"Past":    {"a date that is over", http.Header{"Retry-After": {date.Format(http.TimeFormat)}, "Date": {date.Add(time.Hour).Format(http.TimeFormat)}}, 0},
		"Forever": {"a server must not park us", http.Header{"Retry-After": {"99999999999999999999"}}, letta.MaxRetryAfter},
		"Garbage": {"what cannot be read is not said", http.Header{"Retry-After": {"soon"}, "Retry-After-Ms": {"NaN"}}, 0},
		"Minus":   {"no time runs backwards", http.Header{"Retry-After": {"-5"}}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refusal := Refusal{Status: http.StatusTooManyRequests, Header: tc.header, Body: `{"error":{"type":"llm_rate_limit","message":"` + secretText + `"}}`}
			s.RefuseRead(refusal)
			_, err := s.Client.AgentsByTag(t.Context(), []string{"any"})
			s.is(t, err, letta.ErrUnavailable)
			retryAfter(t, err, tc.want)

			s.RefuseSend(refusal)
			_, err = s.Client.Send(t.Context(), ref, []letta.Input{input()}, letta.SendOptions{})
			s.is(t, err, letta.ErrUnavailable)
			isNot(t, err, letta.ErrOutcomeUnknown)
			retryAfter(t, err, tc.want)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
	s.turns(t, 0)
}

func (s *suite) quota() {
	t := s.t
	need(t, "refuse", s.RefuseRead != nil)
	for name, refusal := range map[string]Refusal{
		"Credits": {Status: http.StatusPaymentRequired, Body: `{"detail":"no credits"}`},
		"Plan":    {Status: http.StatusTooManyRequests, Body: `{"reasons":["exceeded-quota"],"timeToQuotaResetMs":86400000}`},
		"Agents":  {Status: http.StatusTooManyRequests, Body: `{"reasons":["agents-limit-exceeded"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			s.RefuseRead(refusal)
			_, err := s.Client.AgentsByTag(t.Context(), []string{"any"})
			s.is(t, err, letta.ErrQuota)
			isNot(t, err, letta.ErrUnavailable) // retrying soon is of no use
		})
	}
}

func (s *suite) serverErrors() {
	t := s.t
	need(t, "refuse", s.RefuseRead != nil && s.RefuseSend != nil)
	ref := s.conversation(t)
	cases := map[string]struct {
		reason  string
		refusal Refusal
		unknown bool
	}{
		"Internal":   {"it may have failed half way", Refusal{Status: 500, Body: `{"detail":"` + secretText + `"}`}, true},
		"BadGateway": {"a proxy does not know what went on behind it", Refusal{Status: 502, Body: "<html>bad gateway</html>"}, true},
		"ProxyBusy":  {"nor does one that says 503", Refusal{Status: 503, Body: "upstream connect error"}, true},
		"Timeout":    {"nor does one that gave up", Refusal{Status: 504}, true},
		"Own":        {"Letta's own 503 comes before the turn", Refusal{Status: 503, Body: `{"detail":"Background streaming requires Redis to be running."}`}, false},
		"Shutdown": {
			"Cloud says that it did not admit the request",
			Refusal{Status: 503, Header: http.Header{"Retry-After": {"3"}}, Body: `{"errorCode":"cloud_api_shutting_down","admitted":false,"retryable":true}`},
			false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s.RefuseRead(tc.refusal)
			_, err := s.Client.AgentsByTag(t.Context(), []string{"any"})
			s.is(t, err, letta.ErrUnavailable)
			isNot(t, err, letta.ErrOutcomeUnknown)
			if retry, ok := errors.AsType[*letta.RetryError](err); !ok || !retry.Down {
				t.Errorf("error %v, want a RetryError that says down", err)
			}

			s.RefuseSend(tc.refusal)
			_, err = s.Client.Send(t.Context(), ref, []letta.Input{input()}, letta.SendOptions{})
			s.is(t, err, letta.ErrUnavailable)
			if got := errors.Is(err, letta.ErrOutcomeUnknown); got != tc.unknown {
				t.Errorf("%s: outcome unknown = %v, want %v", tc.reason, got, tc.unknown)
			}
		})
	}
	s.turns(t, 0)
}

func (s *suite) hang() {
	t := s.t
	need(t, "hang", s.HangRead != nil && s.HangSend != nil)
	ref := s.conversation(t)
	ctx, cancel := context.WithTimeout(t.Context(), s.CallTimeout+20*time.Second)
	defer cancel()

	s.HangRead()
	_, err := s.Client.AgentsByTag(ctx, []string{"any"})
	s.is(t, err, letta.ErrUnavailable)
	isNot(t, err, letta.ErrOutcomeUnknown)

	s.HangSend()
	in := input()
	_, err = s.Client.Send(ctx, ref, []letta.Input{in}, letta.SendOptions{Timeout: 300 * time.Millisecond})
	s.is(t, err, letta.ErrOutcomeUnknown)
	if ctx.Err() != nil {
		t.Fatalf("the client has no deadline of its own")
	}
	s.delivered(t, ref, in.ClientID, letta.DeliveryAbsent)
}

func (s *suite) wrongKey() {
	t := s.t
	need(t, "use a wrong key", s.WrongKey != nil)
	ref := s.conversation(t)
	_, err := s.WrongKey.AgentsByTag(t.Context(), []string{"any"})
	s.is(t, err, letta.ErrUnauthorized)
	in := input()
	_, err = s.WrongKey.Send(t.Context(), ref, []letta.Input{in}, letta.SendOptions{})
	s.is(t, err, letta.ErrUnauthorized)
	isNot(t, err, letta.ErrOutcomeUnknown)
	_, _, err = s.WrongKey.Lookup(t.Context(), ref, in.ClientID)
	s.is(t, err, letta.ErrUnauthorized)
	for _, err := range s.WrongKey.Messages(t.Context(), ref, "") {
		s.is(t, err, letta.ErrUnauthorized)
	}
	s.turns(t, 0)
}
