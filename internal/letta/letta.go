package letta

import (
	"context"
	"iter"
	"time"
)

// Client is one Letta server as seen by one key. It is safe for concurrent
// use. Every call has a deadline of its own besides that of ctx, and no call
// is repeated behind the caller's back.
type Client interface {
	// Capabilities says which back end this is and what it can do. It proves
	// that the server answers, not that the key is right: servers tell their
	// version to anybody. [Client.AgentsByTag] proves the key.
	Capabilities(ctx context.Context) (Capabilities, error)

	// CreateAgent makes an agent whose only tool edits its memory. It is not
	// idempotent: look with AgentsByTag first, and after a lost answer again.
	CreateAgent(ctx context.Context, spec AgentSpec) (Agent, error)
	// Agent reads one agent with its tags and tools. ErrNotFound if there is
	// none.
	Agent(ctx context.Context, agentID string) (Agent, error)
	// UpdateAgent replaces an agent's instruction and its tags, and nothing
	// else. ErrNotFound if there is none. Doing it again changes nothing.
	UpdateAgent(ctx context.Context, agentID string, patch AgentPatch) (Agent, error)
	// AgentsByTag lists the agents that carry all of the tags, oldest first,
	// so that two callers pick the same one. No tags is ErrInvalid: it would
	// list every agent of the server.
	AgentsByTag(ctx context.Context, tags []string) ([]Agent, error)

	// CreateConversation starts a conversation of an agent. It is not
	// idempotent: look with Conversations first, and after a lost answer
	// again.
	CreateConversation(ctx context.Context, agentID string, spec ConversationSpec) (Conversation, error)
	// Conversation reads one conversation. ErrNotFound if it is gone, or is
	// not the agent's.
	Conversation(ctx context.Context, ref Ref) (Conversation, error)
	// Conversations lists the agent's conversations whose summary contains
	// summarySearch, oldest first; all of them if it is empty.
	Conversations(ctx context.Context, agentID, summarySearch string) ([]Conversation, error)

	// DeleteConversation removes a conversation with what was said in it.
	// ErrNotFound if it is gone already, ErrUnsupported where the back end
	// cannot. What the agent learned from it stays in its memory.
	DeleteConversation(ctx context.Context, ref Ref) error

	// Send gives the inputs to the conversation as one turn and blocks until
	// the turn is over. It never sends twice. Ask errors.Is for
	// ErrOutcomeUnknown before any other error: then, and only then, the turn
	// may have run or may still run, and Lookup tells. Such an error can be a
	// *RetryError besides, and says when to look.
	//
	// With ErrTurnFailed the Turn is filled as far as it got. Where
	// Capabilities.ReplayByClientID is true, sending an id again that failed
	// gives the same failure again without a new turn: take a fresh ClientID
	// for each attempt.
	Send(ctx context.Context, ref Ref, in []Input, opt SendOptions) (Turn, error)
	// Lookup says what became of the input that an earlier Send gave under
	// clientID. The Turn is filled for DeliveryReplied, and holds what is
	// known (run id, stop reason) otherwise.
	Lookup(ctx context.Context, ref Ref, clientID string) (Delivery, Turn, error)
	// Cancel asks the server to end the conversation's running turn. It is no
	// error if none runs. The turn's Send ends with ErrTurnFailed and the
	// stop reason "cancelled".
	Cancel(ctx context.Context, ref Ref) error

	// Messages yields what the conversation lists, each message once, in the
	// server's order. That is the order of time until the conversation was
	// compacted; afterwards sort by Message.At. after is the id of a message
	// to begin behind, "" for the beginning, and only a hint: messages before
	// it come again where the server no longer knows its place. An error is
	// yielded once, as the last pair.
	Messages(ctx context.Context, ref Ref, after string) iter.Seq2[Message, error]

	// Memory reads the agent's blocks, sorted by label.
	Memory(ctx context.Context, agentID string) (Memory, error)
	// PutBlock writes one block, makes it if there is none, and returns the
	// memory's new revision. A label is ^[a-z0-9][a-z0-9_-]{0,62}$. Without a
	// description the block keeps the one it has. reason is kept where the
	// back end has a history. The last writer wins: a write carries no
	// revision on any back end. To write twice does no harm.
	PutBlock(ctx context.Context, agentID string, b Block, reason string) (revision string, err error)
	// DeleteBlock takes one block away and returns the memory's new revision.
	// It is no error if there is none.
	DeleteBlock(ctx context.Context, agentID, label, reason string) (revision string, err error)
	// BlockHistory lists the revisions that changed one block, newest first,
	// at most limit of them and at most MaxHistory. It knows what was written
	// between two calls of Memory. Nil where Capabilities.BlockHistory is
	// false: keep what Memory showed.
	BlockHistory(ctx context.Context, agentID, label string, limit int) ([]BlockRevision, error)
	// Recompile makes the coming turns of a conversation see the memory as it
	// is, and nothing of what it was. Call it for each running conversation of
	// the agent after PutBlock or DeleteBlock, and when the agent wrote in
	// another conversation. Without it a conversation sees a change late (api:
	// after its next compaction), or sees the old text with the new one behind
	// it (appserver). It runs no turn and may meet one: that turn sees what it
	// began with.
	Recompile(ctx context.Context, ref Ref) error

	// Close lets go of connections. Turns under way go on where the back end
	// lets them.
	Close() error
}

// Ref names a conversation. Ids are the server's and opaque: one path segment
// of letters, digits, - and _, at most 128; anything else is ErrInvalid.
type Ref struct{ AgentID, ConversationID string }

// Input is one user message.
type Input struct {
	// ClientID is our name of this attempt: 1 to 128 of the letters, digits
	// and -_.:/ , the same never for anything else at this server, in any
	// conversation. The server stores it beside the message, and one that it
	// has seen for another conversation brings that one's answer.
	ClientID string
	// Text of the message, valid UTF-8, not empty, at most MaxText bytes.
	Text string
}

// MaxText bounds Input.Text. It protects the process; a model's context ends
// far earlier.
const MaxText = 8 << 20

// DefaultTurnTimeout is how long a turn may take where SendOptions says
// nothing. Letta's own stream ends after 30 minutes.
const DefaultTurnTimeout = 10 * time.Minute

// SendOptions of one Send. The zero value means defaults.
type SendOptions struct {
	// Timeout for the whole turn; 0 means DefaultTurnTimeout. When it passes
	// Send returns ErrOutcomeUnknown and the turn goes on.
	Timeout time.Duration
}

// Stop reasons that callers tell apart. There are more: treat all but
// StopEndTurn as failures.
const (
	StopEndTurn          = "end_turn"
	StopCancelled        = "cancelled"
	StopRequiresApproval = "requires_approval"
)

// Turn is what one Send led to.
type Turn struct {
	// RunID is the server's name of the turn, "" if it gave none.
	RunID string
	// StopReason says why the turn ended; "" while that is not known.
	StopReason string
	// Reply holds the assistant's messages of the turn, in order. Reasoning
	// and tool calls are not in it.
	Reply []Message
	// Usage is the turn's cost.
	Usage Usage
}

// Text is the reply's text: the messages joined by blank lines.
func (t Turn) Text() string { return joinText(t.Reply) }

// LastMessageID is the id of the reply's last message, "" without a reply.
func (t Turn) LastMessageID() string {
	if len(t.Reply) == 0 {
		return ""
	}
	return t.Reply[len(t.Reply)-1].ID
}

// Usage counts the tokens of a turn, over all of its model calls.
type Usage struct {
	PromptTokens, CompletionTokens, TotalTokens int64
	// Reported is false where the server gave no numbers, and the others are
	// then zero.
	Reported bool
}

// Delivery is what became of an input.
type Delivery int

const (
	// DeliveryUnknown means not listed, and the history is not whole because it
	// was compacted. The input may have been handled.
	DeliveryUnknown Delivery = iota
	// DeliveryAbsent means not listed, and the history is whole. It can be sent.
	// If Turn.RunID is set a turn ran for it and failed before anything was
	// stored: send it under a fresh ClientID.
	DeliveryAbsent
	// DeliveryRunning means that its turn is under way.
	DeliveryRunning
	// DeliveryNoReply means that the message is stored, and its turn was
	// cancelled or failed before an answer.
	DeliveryNoReply
	// DeliveryReplied means that the message is stored and answered.
	DeliveryReplied
)

// String is the state's name, for logs.
func (d Delivery) String() string {
	switch d {
	case DeliveryAbsent:
		return "Absent"
	case DeliveryRunning:
		return "Running"
	case DeliveryNoReply:
		return "NoReply"
	case DeliveryReplied:
		return "Replied"
	case DeliveryUnknown:
	}
	return "Unknown"
}

// Message types that callers tell apart. There are more.
const (
	UserMessage      = "user_message"
	AssistantMessage = "assistant_message"
	SummaryMessage   = "summary_message"
)

// Message is one item of a conversation's listing, or of a reply.
type Message struct {
	// ID is unique within the conversation together with Type and OTID: one
	// stored message can be listed as several items with the same id.
	ID string
	// Type is the server's message type.
	Type string
	// OTID is our ClientID on a user message, the server's business on
	// others.
	OTID string
	// RunID names the turn the message belongs to, "" if not told.
	RunID string
	// Text of the message, parts joined; "" for types without text.
	Text string
	// At is when the server stored it; zero if not told.
	At time.Time
}

// Capabilities of a back end and the server behind it.
type Capabilities struct {
	// Backend is "api" or "appserver".
	Backend string
	// Version of the server, as it tells it; "" if it does not.
	Version string
	// ReplayByClientID: sending a ClientID again, within hours, replays its
	// turn and runs no second one.
	ReplayByClientID bool
	// FullHistory: messages are listed even after a compaction.
	FullHistory bool
	// BlockHistory: the server keeps every revision of a block.
	BlockHistory bool
	// ReadOnlyBlocks: the server keeps Block.ReadOnly. Elsewhere an agent can
	// change every block, and who wants one to stay writes it again.
	ReadOnlyBlocks bool
}

// AgentSpec says how an agent is made.
type AgentSpec struct {
	// Name is for people.
	Name string
	// Model is the server's handle of a model.
	Model string
	// Embedding is the handle of an embedding model, "" where the server
	// wants none.
	Embedding string
	// System is the agent's instruction.
	System string
	// Tags find the agent again.
	Tags []string
	// Blocks are its first memory.
	Blocks []Block
}

// AgentPatch is what may be changed of an agent that was made.
type AgentPatch struct {
	// System is the agent's new instruction. A conversation that runs reads it
	// when it is recompiled.
	System string
	// Tags are all of its tags from now on.
	Tags []string
}

// Agent is an agent as the server describes it.
type Agent struct {
	ID, Name, Model string
	// System is its instruction, without memory.
	System string
	Tags   []string
	// Tools names the agent's tools, sorted; nil where the back end does not
	// report them, empty and not nil where there are none.
	Tools []string
	// ContextWindow is how many tokens a turn may have, system prompt, memory
	// and history together; 0 if not told.
	ContextWindow int64
	// CreatedAt is zero if not told.
	CreatedAt time.Time
}

// ConversationSpec says how a conversation is made.
type ConversationSpec struct {
	// Summary is its searchable title.
	Summary string
}

// Conversation is a conversation as the server describes it.
type Conversation struct {
	ID, AgentID, Summary string
	// CreatedAt is zero if not told.
	CreatedAt time.Time
}
