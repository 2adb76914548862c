// Package contract is the suite that every back end of internal/letta passes:
// what [letta.Client] says in words, as tests.
//
// A back end's own tests call [Run] with a function that opens a fresh server
// and a client of it, and with the switches the server has. A case whose
// switch is missing is skipped and says so, so that the suite also runs
// against a real server that cannot be told to fail.
//
// The suite knows nothing of what an agent answers, only that it answers.
package contract

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undersong-dev/undersong/internal/letta"
)

// secretText stands in every message that the suite sends and must stand in
// no error.
const secretText = "the transcript says quokka"

// Failure of a turn that a harness can order.
type Failure struct {
	// Stored: the user message is stored first.
	Stored bool
	// RateLimit: the model's provider limits the server.
	RateLimit bool
	// Approval: the turn stops because a tool call wants an approval.
	Approval bool
	// Silent: the stream ends without a word on how the turn ended.
	Silent bool
}

// Refusal is an answer that a harness gives in place of the server.
type Refusal struct {
	Status int
	Header http.Header
	Body   string
}

// Harness is one fresh server, a client of it, and its switches. Switches may
// be nil. The client's deadlines should be short: CallTimeout says how long a
// call may take that is never answered.
type Harness struct {
	Client letta.Client
	// Model is a handle that the server knows.
	Model string
	// Secrets must stand in no error: keys, hosts, ports.
	Secrets []string
	// CallTimeout of the client.
	CallTimeout time.Duration

	// WrongKey is a client of the same server with another key.
	WrongKey letta.Client
	// Turns counts the turns that the server has begun.
	Turns func() int
	// Hold keeps turns from ending until release.
	Hold func() (release func())
	// FailTurn makes the next turn fail.
	FailTurn func(Failure)
	// LoseAnswer lets the next turn run and loses its answer.
	LoseAnswer func()
	// CutAnswer breaks the next turn's stream after its beginning.
	CutAnswer func()
	// DropRequest loses the connection of the next send before the server has
	// done anything.
	DropRequest func()
	// RefuseSend and RefuseRead answer the next send, or the next listing of
	// agents.
	RefuseSend, RefuseRead func(Refusal)
	// HangSend and HangRead leave them without an answer.
	HangSend, HangRead func()
	// Crash kills the server as a power cut does. restart starts it again on
	// what it had written, at the same address.
	Crash func(t *testing.T) (restart func())
	// ExpireReplays ends the time in which the server knows client ids.
	ExpireReplays func()
	// Compact compacts a conversation.
	Compact func(t *testing.T, ref letta.Ref)
	// CallTool makes the model's next answer a call of a tool. After the turn
	// result says what the tool answered, and tools what the model was
	// offered.
	CallTool func(name string, arguments map[string]any) (result func() string, tools func() []string)
	// Prompt is what the conversation's last turn told the model before all
	// messages: instruction and memory.
	Prompt func(t *testing.T, ref letta.Ref) string
	// SecretFiles are files on the server's disk, and SecretTexts what stands
	// in them, that no agent may read.
	SecretFiles, SecretTexts []string

	// What back ends differ in by their nature:

	// Cannot names the cases whose situation cannot arise, and why.
	Cannot map[string]string
	// StoresFirst: the message is stored before the model is asked, so that a
	// failed turn has always left it.
	StoresFirst bool
	// HugeBytes is how large a message may be and still be listed; 0 means a
	// mebibyte.
	HugeBytes int
	// Compacted is how many turns lie between two compactions; 0 means 40.
	Compacted int
	// ManyAgents is how many agents are more than one page; 0 means 120.
	ManyAgents int
}

// Run runs the suite. open is called once for each case and opens a server of
// its own, so that cases run side by side.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	run(t, open, true)
}

// RunShared is Run for a server that takes too long to start: open gives each
// case the same one, and one case runs after the other.
func RunShared(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	run(t, open, false)
}

func run(t *testing.T, open func(t *testing.T) Harness, parallel bool) {
	t.Helper()
	for name, test := range map[string]func(*suite){
		"Capabilities":          (*suite).capabilities,
		"AgentsByTag":           (*suite).agentsByTag,
		"AgentsManyPages":       (*suite).agentsManyPages,
		"AgentUpdate":           (*suite).agentUpdate,
		"AgentRefusals":         (*suite).agentRefusals,
		"Conversations":         (*suite).conversations,
		"Send":                  (*suite).send,
		"SendRefusals":          (*suite).sendRefusals,
		"SendSeveral":           (*suite).sendSeveral,
		"SendHuge":              (*suite).sendHuge,
		"SendParallel":          (*suite).sendParallel,
		"SendAgain":             (*suite).sendAgain,
		"Busy":                  (*suite).busy,
		"LostAnswer":            (*suite).lostAnswer,
		"CutAnswer":             (*suite).cutAnswer,
		"DroppedRequest":        (*suite).droppedRequest,
		"TurnFails":             (*suite).turnFails,
		"TurnFailsStored":       (*suite).turnFailsStored,
		"TurnFailsRateLimited":  (*suite).turnFailsRateLimited,
		"TurnWantsApproval":     (*suite).turnWantsApproval,
		"TurnEndsSilently":      (*suite).turnEndsSilently,
		"TurnCancelled":         (*suite).turnCancelled,
		"TurnNeverEnds":         (*suite).turnNeverEnds,
		"CallerLeaves":          (*suite).callerLeaves,
		"Crash":                 (*suite).crash,
		"LookupAbsent":          (*suite).lookupAbsent,
		"LookupAfterWindow":     (*suite).lookupAfterWindow,
		"Compaction":            (*suite).compaction,
		"CompactionAfterCursor": (*suite).compactionAfterCursor,
		"ConversationDeleted":   (*suite).conversationDeleted,
		"Memory":                (*suite).memory,
		"MemoryDelete":          (*suite).memoryDelete,
		"MemoryHistory":         (*suite).memoryHistory,
		"MemoryReachesTurns":    (*suite).memoryReachesTurns,
		"MemoryHostileLabels":   (*suite).memoryHostileLabels,
		"MemoryByAgent":         (*suite).memoryByAgent,
		"ToolsRefused":          (*suite).toolsRefused,
		"SecretsUnreadable":     (*suite).secretsUnreadable,
		"RateLimit":             (*suite).rateLimit,
		"Quota":                 (*suite).quota,
		"ServerErrors":          (*suite).serverErrors,
		"Hang":                  (*suite).hang,
		"WrongKey":              (*suite).wrongKey,
	} {
		t.Run(name, func(t *testing.T) {
			if parallel {
				t.Parallel()
			}
			h := open(t)
			if why := h.Cannot[name]; why != "" {
				t.Skip("cannot arise: " + why)
			}
			test(&suite{Harness: h, t: t})
		})
	}
}

// suite is one case under way. Its cases are methods without a parameter t, so
// that a failure is reported at its own line.
type suite struct {
	Harness
	t *testing.T
}

// need skips the case if the harness lacks a switch.
func need(t *testing.T, name string, has bool) {
	t.Helper()
	if !has {
		t.Skipf("the harness cannot: %s", name)
	}
}

// agent makes an agent with a tag of its own.
func (s *suite) agent(t *testing.T) letta.Agent {
	t.Helper()
	a, err := s.Client.CreateAgent(t.Context(), letta.AgentSpec{
		Name: "Team Memory", Model: s.Model, System: "Listen.", Tags: []string{"tag:" + uuid.NewString()},
		Blocks: []letta.Block{{Label: "brief", Value: "Nothing yet.", Description: "what to know first"}},
	})
	if err != nil {
		t.Fatalf("CreateAgent: %v", err)
	}
	return a
}

// conversation makes a conversation of a fresh agent.
func (s *suite) conversation(t *testing.T) letta.Ref {
	t.Helper()
	a := s.agent(t)
	c, err := s.Client.CreateConversation(t.Context(), a.ID, letta.ConversationSpec{Summary: "session " + uuid.NewString()})
	if err != nil {
		t.Fatalf("CreateConversation: %v", err)
	}
	return letta.Ref{AgentID: a.ID, ConversationID: c.ID}
}

// input makes a message with a fresh client id.
func input() letta.Input {
	return letta.Input{ClientID: uuid.NewString(), Text: secretText}
}

// mustSend sends and fails the test if the turn does not end well.
func (s *suite) mustSend(t *testing.T, ref letta.Ref, in ...letta.Input) letta.Turn {
	t.Helper()
	turn, err := s.Client.Send(t.Context(), ref, in, letta.SendOptions{})
	if err != nil {
		t.Fatalf("Send: %v", err)
	}
	return turn
}

// lookup looks up and fails the test on an error.
func (s *suite) lookup(t *testing.T, ref letta.Ref, clientID string) (letta.Delivery, letta.Turn) {
	t.Helper()
	d, turn, err := s.Client.Lookup(t.Context(), ref, clientID)
	if err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	return d, turn
}

// delivered fails the test if what became of the input is not want.
func (s *suite) delivered(t *testing.T, ref letta.Ref, clientID string, want letta.Delivery) letta.Turn {
	t.Helper()
	got, turn := s.lookup(t, ref, clientID)
	if got != want {
		t.Errorf("Lookup = %v, want %v", got, want)
	}
	return turn
}

// becomes waits until Lookup gives the state.
func (s *suite) becomes(t *testing.T, ref letta.Ref, clientID string, want letta.Delivery) letta.Turn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		got, turn, err := s.Client.Lookup(ctx, ref, clientID)
		if ctx.Err() != nil {
			t.Fatalf("Lookup never became %v", want)
		}
		if err != nil {
			t.Fatalf("Lookup: %v", err)
		}
		if got == want {
			return turn
		}
	}
}

// turns fails the test if the server has not begun just as many turns. It
// waits a while for one to begin: a server may prepare before it asks the
// model.
func (s *suite) turns(t *testing.T, want int) {
	t.Helper()
	if s.Turns == nil {
		return
	}
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.Turns() < want {
		select {
		case <-tick.C:
			continue
		case <-deadline.C:
		}
		break
	}
	if got := s.Turns(); got != want {
		t.Errorf("the server ran %d turns, want %d", got, want)
	}
}

var (
	address = regexp.MustCompile(`https?://|\b\d+\.\d+\.\d+\.\d+\b|:\d{2,5}\b|localhost`)
	unique  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)
)

// is fails the test if err is not all of the wanted errors, or if its text
// cannot stand in a condition.
func (s *suite) is(t *testing.T, err error, want ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", want)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("error %q is not %q", err, w)
		}
	}
	text := err.Error()
	for _, secret := range append([]string{secretText, "quokka"}, s.Secrets...) {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("the error tells a secret: %q", text)
		}
	}
	if m := address.FindString(text); m != "" {
		t.Errorf("the error holds an address (%s): %q", m, text)
	}
	if m := unique.FindString(text); m != "" {
		t.Errorf("the error holds an id (%s): %q", m, text)
	}
	if len(text) > 200 {
		t.Errorf("the error is %d bytes long: %q", len(text), text)
	}
}

// isNot fails the test if err is the error.
func isNot(t *testing.T, err, unwanted error) {
	t.Helper()
	if errors.Is(err, unwanted) {
		t.Errorf("error %q is %q", err, unwanted)
	}
}

// retryAfter fails the test if err is no RetryError with that time.
func retryAfter(t *testing.T, err error, want time.Duration) {
	t.Helper()
	var retry *letta.RetryError
	if !errors.As(err, &retry) {
		t.Errorf("error %v is no RetryError", err)
		return
	}
	if retry.After != want {
		t.Errorf("RetryError.After = %v, want %v", retry.After, want)
	}
}

// collect lists a conversation.
func (s *suite) collect(t *testing.T, ref letta.Ref, after string) []letta.Message {
	t.Helper()
	var out []letta.Message
	seen := map[string]bool{}
	for m, err := range s.Client.Messages(t.Context(), ref, after) {
		if err != nil {
			t.Fatalf("Messages: %v", err)
		}
		key := fmt.Sprintf("%s %s %s", m.ID, m.Type, m.OTID)
		if seen[key] {
			t.Errorf("Messages gives %s of %s twice", m.Type, m.ID)
		}
		seen[key] = true
		out = append(out, m)
	}
	return out
}
