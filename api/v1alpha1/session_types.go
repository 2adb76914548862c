package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Agent names the coding agent that wrote a session.
// +kubebuilder:validation:Enum=ClaudeCode
type Agent string

// AgentClaudeCode is Anthropic's Claude Code.
const AgentClaudeCode Agent = "ClaudeCode"

// WriterState says whether a workstation still writes to a session.
// +kubebuilder:validation:Enum=Active;Ended
type WriterState string

const (
	// WriterActive: more segments may come.
	WriterActive WriterState = "Active"
	// WriterEnded: the session ended on this workstation. A resumed session
	// becomes Active again.
	WriterEnded WriterState = "Ended"
)

// SessionState is the state of a whole session.
// +kubebuilder:validation:Enum=Active;Idle;Ended
type SessionState string

const (
	// SessionActive: the session was heard of within the last hour.
	SessionActive SessionState = "Active"
	// SessionIdle: nothing was heard for an hour, and the session did not end.
	SessionIdle SessionState = "Idle"
	// SessionEnded: every writer ended.
	SessionEnded SessionState = "Ended"
)

// RequestKind names what an owner asks for.
// +kubebuilder:validation:Enum=Forget;WrongWhisper
type RequestKind string

const (
	// RequestForget asks for lines to be erased.
	RequestForget RequestKind = "Forget"
	// RequestWrongWhisper asks for a whisper to be withdrawn.
	RequestWrongWhisper RequestKind = "WrongWhisper"
)

// LocalRef names an object of the same namespace.
type LocalRef struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// Project is the repository a session works in.
type Project struct {
	// name is the last part of the remote, for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	Name string `json:"name"`

	// remote is the git remote as host/path: lower case, without scheme, port,
	// user, query and .git. Outside git it is local/ and 8 hex digits.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9._~/-]+$`
	Remote string `json:"remote"`
}

// Slot says in which slot of the workstation's inbox a segment lies.
type Slot struct {
	// seq is the segment's number, from 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	Seq int64 `json:"seq"`

	// slot is the slot's number, from 1, as the grant names it.
	// +required
	// +kubebuilder:validation:Minimum=1
	Slot int64 `json:"slot"`
}

// Writer is what one workstation says of its own part of a session. Only that
// workstation applies it.
// +kubebuilder:validation:XValidation:rule="self.segments != oldSelf.segments || (self.chain == oldSelf.chain && self.previousChain == oldSelf.previousChain && self.lines == oldSelf.lines && self.bytes == oldSelf.bytes)",message="segments, chain, previousChain, lines and bytes change together: an entry without a new segment keeps them"
// +kubebuilder:validation:XValidation:rule="self.segments >= oldSelf.segments",message="segments cannot be taken back"
// +kubebuilder:validation:XValidation:rule="self.segments <= oldSelf.segments || (self.previousChain == oldSelf.chain && self.lines >= oldSelf.lines && self.bytes >= oldSelf.bytes)",message="previousChain must be the chain that the cluster has, and lines and bytes can only grow"
// +kubebuilder:validation:XValidation:rule="self.segments == oldSelf.segments || self.chain != oldSelf.chain",message="a new segment has a new chain"
// +kubebuilder:validation:XValidation:rule="!has(self.slots) || self.slots.all(s, s.seq <= self.segments)",message="slots cannot name a segment beyond segments"
type Writer struct {
	// workstation is the name of the Workstation that writes this entry.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Workstation string `json:"workstation"`

	// state is Active while more may come, Ended after the session ended there.
	// +required
	State WriterState `json:"state"`

	// branch is the git branch of the newest record. Empty when unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	Branch string `json:"branch,omitempty"`

	// segments is the number of segments in the object store. They are
	// numbered from 1 without gaps.
	// +required
	// +kubebuilder:validation:Minimum=0
	Segments int64 `json:"segments"`

	// lines is the number of transcript lines, of all streams, in these
	// segments.
	// +required
	// +kubebuilder:validation:Minimum=0
	Lines int64 `json:"lines"`

	// bytes is the size of these segments, uncompressed.
	// +required
	// +kubebuilder:validation:Minimum=0
	Bytes int64 `json:"bytes"`

	// chain is the head of the hash chain over these segments, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Chain string `json:"chain"`

	// previousChain is the head that the cluster had when this entry last
	// grew. A write that adds segments must name the head it continues.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	PreviousChain string `json:"previousChain"`

	// slots says where the segments lie that are not verified yet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Slots []Slot `json:"slots,omitempty"`

	// gone lists segments that were asked for again and cannot be sent again.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	Gone []int64 `json:"gone,omitempty"`
}

// Request is something the owner asks of the controller.
type Request struct {
	// id is made by the owner's command line.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,36}$`
	ID string `json:"id"`

	// kind says what is asked for.
	// +required
	Kind RequestKind `json:"kind"`

	// workstation is the writer whose lines are meant. Empty means all.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Workstation string `json:"workstation,omitempty"`

	// fromLine is the first line meant, from 1, counted over the lines of the
	// writer's segments, of all streams. Omitted means the first.
	// +optional
	// +kubebuilder:validation:Minimum=1
	FromLine *int64 `json:"fromLine,omitempty"`

	// toLine is the last line meant. Omitted means the last.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ToLine *int64 `json:"toLine,omitempty"`

	// whisper is the id of the whisper meant. Empty for Forget.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Whisper string `json:"whisper,omitempty"`
}

// SessionSpec is what the owner's workstations say of a session.
// +kubebuilder:validation:XValidation:rule="self.lines == (has(self.writers) ? self.writers.map(w, w.lines).sum() : 0)",message="lines must be the sum of the writers' lines"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.writers) || (has(self.writers) && oldSelf.writers.all(o, self.writers.exists(w, w.workstation == o.workstation)))",message="a writer's entry cannot be removed"
// +kubebuilder:validation:XValidation:rule="self.owner == oldSelf.owner && self.sessionID == oldSelf.sessionID && self.agent == oldSelf.agent && self.memoryRef == oldSelf.memoryRef && self.project == oldSelf.project",message="owner, sessionID, agent, memoryRef and project cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.forkedFrom) == has(oldSelf.forkedFrom) && (!has(self.forkedFrom) || self.forkedFrom == oldSelf.forkedFrom)",message="forkedFrom cannot be changed"
type SessionSpec struct {
	// owner is the user name, as the API server knows it, of the person whose
	// session this is.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Owner string `json:"owner"`

	// sessionID is the coding agent's own id of the session.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?$`
	SessionID string `json:"sessionID"`

	// agent is the coding agent.
	// +required
	Agent Agent `json:"agent"`

	// memoryRef names the TeamMemory that hears this session.
	// +required
	MemoryRef LocalRef `json:"memoryRef"`

	// project is the repository of the first captured record.
	// +required
	Project Project `json:"project"`

	// forkedFrom is the session id this one was forked from.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?$`
	ForkedFrom string `json:"forkedFrom,omitempty"`

	// writers has one entry for each workstation that writes this session.
	// +optional
	// +listType=map
	// +listMapKey=workstation
	// +kubebuilder:validation:MaxItems=8
	Writers []Writer `json:"writers,omitempty"`

	// lines is the sum over writers: what was uploaded.
	// +required
	// +kubebuilder:validation:Minimum=0
	Lines int64 `json:"lines"`

	// requests are what the owner asks for. The answers are in
	// status.answered.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	Requests []Request `json:"requests,omitempty"`
}

// UsageSource says where token counts come from.
// +kubebuilder:validation:Enum=Reported;Estimated
type UsageSource string

const (
	// UsageReported: the Letta back end reports them.
	UsageReported UsageSource = "Reported"
	// UsageEstimated: the back end reports nothing; estimated from bytes.
	UsageEstimated UsageSource = "Estimated"
)

// Usage is what a session's memory cost.
type Usage struct {
	// turns is the number of finished turns.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Turns int64 `json:"turns,omitempty"`

	// tokens is the number of tokens of these turns.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Tokens int64 `json:"tokens,omitempty"`

	// source says whether tokens are reported or estimated. Empty before the
	// first turn.
	// +optional
	Source UsageSource `json:"source,omitempty"`

	// day is the day, by UTC, of dayTokens and dayImportTokens. Empty before
	// the first turn.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	Day string `json:"day,omitempty"`

	// dayTokens is the number of tokens spent on that day, failed turns and
	// imports included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DayTokens int64 `json:"dayTokens,omitempty"`

	// dayImportTokens are those of them that imports took.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DayImportTokens int64 `json:"dayImportTokens,omitempty"`
}

// Whisper is one message of the memory to the session's owner.
type Whisper struct {
	// id is the whisper's id, also inside the sealed text.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// at is when it was published.
	// +required
	At metav1.Time `json:"at"`

	// bytes is the size of the text before sealing.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2000
	Bytes int32 `json:"bytes"`

	// sealed is the text, sealed with age to the owner's workstations, in
	// base64.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Sealed string `json:"sealed"`

	// text is the same text for everybody to read, where the TeamMemory says
	// whispers Team.
	// +optional
	// +kubebuilder:validation:MaxLength=2000
	Text string `json:"text,omitempty"`
}

// DeliveryPhase says how far one delivery is.
// +kubebuilder:validation:Enum=Sending;Nudging;Delivered;Published
type DeliveryPhase string

const (
	// DeliverySending: the delta may or may not have reached Letta.
	DeliverySending DeliveryPhase = "Sending"
	// DeliveryNudging: Letta has the delta, gave no answer and is asked again.
	DeliveryNudging DeliveryPhase = "Nudging"
	// DeliveryDelivered: Letta answered.
	DeliveryDelivered DeliveryPhase = "Delivered"
	// DeliveryPublished: the answer was published or was silence.
	DeliveryPublished DeliveryPhase = "Published"
)

// DeliveryAnswer says what is done with the answer to a delivery.
// +kubebuilder:validation:Enum=Publish;Drop
type DeliveryAnswer string

const (
	// AnswerPublish: it is published.
	AnswerPublish DeliveryAnswer = "Publish"
	// AnswerDrop: it is not, because the owner had lines of the delivery
	// erased meanwhile.
	AnswerDrop DeliveryAnswer = "Drop"
)

// Cut is a position in one writer's segments: so many whole segments, and so
// many lines of the next.
type Cut struct {
	// segments that lie wholly before the cut.
	// +required
	// +kubebuilder:validation:Minimum=0
	Segments int64 `json:"segments"`

	// lines of the next segment that lie before the cut.
	// +required
	// +kubebuilder:validation:Minimum=0
	Lines int64 `json:"lines"`
}

// Delivery is the ledger of the newest turn. It is written before anything is
// sent, so that after a crash the controller looks before it sends again.
type Delivery struct {
	// id is made of the Session's name and the cuts. It is also in the text,
	// so that the agent recognises a repeat.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// workstation is the writer whose records are sent.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Workstation string `json:"workstation"`

	// from is the cut before the first record.
	// +required
	From Cut `json:"from"`

	// to is the cut after the last record.
	// +required
	To Cut `json:"to"`

	// renderVersion is the version of the rules that made the text, so that it
	// can be made again byte for byte.
	// +required
	// +kubebuilder:validation:Minimum=1
	RenderVersion int32 `json:"renderVersion"`

	// toolResults is what the TeamMemory's capture.toolResults said when the
	// text was made: a later change does not change this text. Omitted means
	// Local.
	// +optional
	ToolResults ToolResults `json:"toolResults,omitempty"`

	// thinking is what capture.thinking said then. Omitted means Deny.
	// +optional
	Thinking Allowance `json:"thinking,omitempty"`

	// phase says how far the delivery is.
	// +required
	Phase DeliveryPhase `json:"phase"`

	// attempts counts what was sent for this delivery: 1 for the first.
	// +required
	// +kubebuilder:validation:Minimum=1
	Attempts int32 `json:"attempts"`

	// answer is Drop when lines of this delivery were erased since it began.
	// Omitted means Publish.
	// +optional
	Answer DeliveryAnswer `json:"answer,omitempty"`

	// corrections are the ids of whispers that their reader calls wrong, as
	// the agent is told with this delivery.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f-]{1,64}$`
	Corrections []string `json:"corrections,omitempty"`

	// at is when the newest attempt was prepared.
	// +optional
	At *metav1.Time `json:"at,omitempty"`

	// maxEntryBytes bounds the text of one record, of which a longer one is
	// sent as head and tail. It is kept so that the text can be made again.
	// Omitted means 262144.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=262144
	MaxEntryBytes int32 `json:"maxEntryBytes,omitempty"`
}

// ParkedDelivery is a delivery that was given up for now, so that what comes
// after it is not kept from the memory. Its words are in the archive.
type ParkedDelivery struct {
	// delivery as it was when it was given up.
	// +required
	Delivery Delivery `json:"delivery"`

	// lines between its cuts.
	// +required
	// +kubebuilder:validation:Minimum=0
	Lines int64 `json:"lines"`

	// at is when it was given up. It is tried again a day later.
	// +required
	At metav1.Time `json:"at"`

	// memoryGeneration is the generation of the TeamMemory then. With another
	// one it is tried again at once.
	// +required
	// +kubebuilder:validation:Minimum=0
	MemoryGeneration int64 `json:"memoryGeneration"`
}

// SyncedBlock is one memory block as the session last saw it.
type SyncedBlock struct {
	// label of the block.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9_-]{0,62}$`
	Label string `json:"label"`

	// digest is the sha256 of the value, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Digest string `json:"digest"`

	// bytes is the size of the value.
	// +required
	// +kubebuilder:validation:Minimum=0
	Bytes int64 `json:"bytes"`
}

// WriterVerified is how far a writer's segments are verified.
type WriterVerified struct {
	// segments that are verified and archived.
	// +required
	// +kubebuilder:validation:Minimum=0
	Segments int64 `json:"segments"`

	// chain is the head over these segments, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Chain string `json:"chain"`
}

// WriterOrigin says where what is known of a writer comes from.
// +kubebuilder:validation:Enum=Archive
type WriterOrigin string

// OriginArchive: the archive's record of an earlier Session of this name.
// Whether the workstation goes on from there is not known yet.
const OriginArchive WriterOrigin = "Archive"

// WriterSync is what the cluster knows of one writer.
type WriterSync struct {
	// workstation of the writer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Workstation string `json:"workstation"`

	// chapter counts how often this workstation began its segments anew in a
	// Session of this name, after the Session had been deleted. The archive has
	// a folder for each. Omitted means that it never did.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Chapter int32 `json:"chapter,omitempty"`

	// origin is Archive while this is what an earlier Session of this name
	// left, and the workstation was not heard of since. Omitted: it was.
	// +optional
	Origin WriterOrigin `json:"origin,omitempty"`

	// verified says which segments the archive holds.
	// +required
	Verified WriterVerified `json:"verified"`

	// delivered says which records Letta has.
	// +required
	Delivered Cut `json:"delivered"`

	// lines is the number of this writer's lines that are delivered, or known
	// to hold no words.
	// +required
	// +kubebuilder:validation:Minimum=0
	Lines int64 `json:"lines"`

	// lastProcessedIndex is the position among the parsable lines of this
	// writer's main stream, current generation, up to which all is delivered,
	// withheld or known to hold no words. It falls when the file was replaced
	// and a generation starts. -1 if none.
	// +required
	// +kubebuilder:validation:Minimum=-1
	LastProcessedIndex int64 `json:"lastProcessedIndex"`

	// wanted lists segments that the workstation shall send again.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	Wanted []int64 `json:"wanted,omitempty"`

	// held lists segments that are not delivered because of a secret, first to
	// last. When it is full no further segment is verified.
	// +optional
	// +listType=map
	// +listMapKey=segment
	// +kubebuilder:validation:MaxItems=16
	Held []HeldSegment `json:"held,omitempty"`
}

// HeldSegment is a segment that is not delivered because the controller found
// a secret in it. The archive has it without the secret.
type HeldSegment struct {
	// segment is its number.
	// +required
	// +kubebuilder:validation:Minimum=1
	Segment int64 `json:"segment"`

	// fromLine is the first line with a secret, counted from 1 in the segment.
	// +required
	// +kubebuilder:validation:Minimum=1
	FromLine int64 `json:"fromLine"`

	// toLine is the last one.
	// +required
	// +kubebuilder:validation:Minimum=1
	ToLine int64 `json:"toLine"`
}

// SyncState is what workstations fill their local state files from.
type SyncState struct {
	// conversationID is Letta's id of this session's conversation. Opaque.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ConversationID string `json:"conversationID,omitempty"`

	// agentID is Letta's id of the agent behind it. Opaque.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	AgentID string `json:"agentID,omitempty"`

	// lastProcessedIndex is that of the writer last delivered. -1 if none.
	// +required
	// +kubebuilder:validation:Minimum=-1
	LastProcessedIndex int64 `json:"lastProcessedIndex"`

	// lastSeenMessageID is Letta's id of the newest published message.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	LastSeenMessageID string `json:"lastSeenMessageID,omitempty"`

	// memoryRevision names the state of the memory after the last turn.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	MemoryRevision string `json:"memoryRevision,omitempty"`

	// blocks are the memory's blocks at that revision.
	// +optional
	// +listType=map
	// +listMapKey=label
	// +kubebuilder:validation:MaxItems=32
	Blocks []SyncedBlock `json:"blocks,omitempty"`

	// seen is the digest of the seen-set object in the store. Empty before the
	// first turn.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Seen string `json:"seen,omitempty"`

	// record is the revision of the store's own record of this session that
	// this status is based on. A record that is ahead means that the cluster
	// was restored.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Record int64 `json:"record,omitempty"`

	// delivery is the newest delivery, finished or not.
	// +optional
	Delivery *Delivery `json:"delivery,omitempty"`

	// corrections are the ids of whispers that their reader calls wrong, of
	// which the agent was not told yet.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f-]{1,64}$`
	Corrections []string `json:"corrections,omitempty"`

	// abandoned are conversations that are not gone on with, because what was
	// scrubbed or forgotten stands in them and the back end cannot delete them. Newest
	// last; of more than 8 the oldest are forgotten.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=128
	Abandoned []string `json:"abandoned,omitempty"`

	// parked are deliveries that Letta did not answer however often it was
	// asked, oldest first. When it is full nothing more is given up.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Parked []ParkedDelivery `json:"parked,omitempty"`

	// writers has what the cluster knows of each writer.
	// +optional
	// +listType=map
	// +listMapKey=workstation
	// +kubebuilder:validation:MaxItems=8
	Writers []WriterSync `json:"writers,omitempty"`
}

// AnswerResult says what became of a request.
// +kubebuilder:validation:Enum=Done;Partial;Refused
type AnswerResult string

const (
	// AnswerDone: all of it was done.
	AnswerDone AnswerResult = "Done"
	// AnswerPartial: some of it could not be reached; the message says what.
	AnswerPartial AnswerResult = "Partial"
	// AnswerRefused: nothing was done; the message says why.
	AnswerRefused AnswerResult = "Refused"
)

// Answer is the controller's answer to a request.
type Answer struct {
	// id of the request.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=36
	ID string `json:"id"`

	// result says what became of it.
	// +required
	Result AnswerResult `json:"result"`

	// message says what could not be reached, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// SessionStatus is what the controller says of a session.
type SessionStatus struct {
	// observedGeneration is the generation that Ready or Stalled speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, Verified, Delivered, Published, and Reconciling or
	// Stalled while True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// state is Active, Idle after an hour without news, or Ended.
	// +optional
	State SessionState `json:"state,omitempty"`

	// title is the session's title, at most 60 safe characters. Empty when
	// unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=60
	Title string `json:"title,omitempty"`

	// tag is the tag the person gave the session.
	// +optional
	// +kubebuilder:validation:MaxLength=60
	Tag string `json:"tag,omitempty"`

	// pullRequest is the newest pull request the session linked, as
	// owner/repository#number.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	PullRequest string `json:"pullRequest,omitempty"`

	// lastActivityTime is when a segment of this session was last verified.
	// +optional
	LastActivityTime *metav1.Time `json:"lastActivityTime,omitempty"`

	// lines is the number of lines that are delivered, or known to hold no
	// words: what was processed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Lines int64 `json:"lines,omitempty"`

	// lag is spec.lines minus lines and lostLines: what still waits.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Lag int64 `json:"lag,omitempty"`

	// usage is what this session's turns cost.
	// +optional
	Usage Usage `json:"usage,omitzero"`

	// lostLines counts lines that could not be sent again when asked for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LostLines int64 `json:"lostLines,omitempty"`

	// whispers are the newest messages of the memory, sealed to the owner.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=4
	Whispers []Whisper `json:"whispers,omitempty"`

	// withdrawn are the newest whispers that were taken back: a workstation that
	// has one already does not show it any more. Newest last.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	Withdrawn []string `json:"withdrawn,omitempty"`

	// syncState is what workstations fill their local state files from.
	// +optional
	SyncState *SyncState `json:"syncState,omitempty"`

	// answered has the answers to spec.requests.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	Answered []Answer `json:"answered,omitempty"`
}

// Session is one session of a coding agent that the team's memory hears. Its
// name is SessionName of its session id and owner.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ses,categories=undersong
// +kubebuilder:selectablefield:JSONPath=`.spec.owner`
// +kubebuilder:selectablefield:JSONPath=`.spec.project.remote`
// +kubebuilder:selectablefield:JSONPath=`.spec.memoryRef.name`
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.owner`
// +kubebuilder:printcolumn:name="Project",type=string,JSONPath=`.spec.project.name`
// +kubebuilder:printcolumn:name="Title",type=string,JSONPath=`.status.title`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Uploaded",type=integer,JSONPath=`.spec.lines`,description="lines in the object store"
// +kubebuilder:printcolumn:name="Processed",type=integer,JSONPath=`.status.lines`,description="lines given to the memory, or without words"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastActivityTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Lag",type=integer,priority=1,JSONPath=`.status.lag`
// +kubebuilder:printcolumn:name="Memory",type=string,priority=1,JSONPath=`.spec.memoryRef.name`
// +kubebuilder:printcolumn:name="Agent",type=string,priority=1,JSONPath=`.spec.agent`
// +kubebuilder:printcolumn:name="Conversation",type=string,priority=1,JSONPath=`.status.syncState.conversationID`
// +kubebuilder:printcolumn:name="MemTokens",type=integer,priority=1,JSONPath=`.status.usage.tokens`
// +kubebuilder:printcolumn:name="Branch",type=string,priority=1,JSONPath=`.spec.writers[0].branch`
// +kubebuilder:printcolumn:name="PR",type=string,priority=1,JSONPath=`.status.pullRequest`
type Session struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec SessionSpec `json:"spec"`
	// +optional
	Status SessionStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the status.
func (s *Session) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (s *Session) SetConditions(c []metav1.Condition) { s.Status.Conditions = c }

// SessionList is a list of Sessions.
// +kubebuilder:object:root=true
type SessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Session `json:"items"`
}
