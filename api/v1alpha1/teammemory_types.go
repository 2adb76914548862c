package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Backend names a Letta back end.
// +kubebuilder:validation:Enum=API;AppServer
type Backend string

const (
	// BackendAPI is the REST API v1: Letta Cloud, and the archived server.
	BackendAPI Backend = "API"
	// BackendAppServer is the App Server, which people run themselves.
	BackendAppServer Backend = "AppServer"
)

// Scope says how many agents a TeamMemory has.
// +kubebuilder:validation:Enum=Project;Team
type Scope string

const (
	// ScopeProject: one agent for each project. What is learned in one
	// repository stays there.
	ScopeProject Scope = "Project"
	// ScopeTeam: one agent for all projects.
	ScopeTeam Scope = "Team"
)

// RecallMode says what developers are shown. A workstation, a repository and a
// session may show less, never more.
// +kubebuilder:validation:Enum=Brief;Whisper;Full;Off
type RecallMode string

const (
	// RecallBrief shows the block brief of the project when a session starts,
	// is cleared or compacted, and messages of the memory.
	RecallBrief RecallMode = "Brief"
	// RecallWhisper shows messages of the memory only.
	RecallWhisper RecallMode = "Whisper"
	// RecallFull shows every block, later what changed in them, and messages.
	RecallFull RecallMode = "Full"
	// RecallOff shows nothing.
	RecallOff RecallMode = "Off"
)

// Whispers says who can read what the memory says to a person.
// +kubebuilder:validation:Enum=Owner;Team
type Whispers string

const (
	// WhispersOwner: the owner of the session alone. Whispers are sealed.
	WhispersOwner Whispers = "Owner"
	// WhispersTeam: everybody who may read Sessions. They are shown to nobody
	// but the owner.
	WhispersTeam Whispers = "Team"
)

// Suspend says what is held back.
// +kubebuilder:validation:Enum=None;Delivery;Recall;All
type Suspend string

const (
	// SuspendNone holds nothing back.
	SuspendNone Suspend = "None"
	// SuspendDelivery archives, and gives nothing to Letta.
	SuspendDelivery Suspend = "Delivery"
	// SuspendRecall shows nothing to developers.
	SuspendRecall Suspend = "Recall"
	// SuspendAll does both.
	SuspendAll Suspend = "All"
)

// Letta says where a memory's agents live.
// +kubebuilder:validation:XValidation:rule="(has(self.insecure) && self.insecure == 'Allow') || self.baseURL.startsWith('https://') || self.baseURL.startsWith('wss://')",message="baseURL must be https or wss, or insecure must be Allow"
// +kubebuilder:validation:XValidation:rule="self.backend == 'AppServer' || self.baseURL.startsWith('http')",message="ws and wss are for the backend AppServer"
type Letta struct {
	// backend is the protocol spoken at baseURL.
	// +required
	Backend Backend `json:"backend"`

	// baseURL is where it is spoken, without a path. For an AppServer https
	// and wss mean the same, and so do http and ws.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(http|ws)s?://[A-Za-z0-9.\[\]:-]+$`
	BaseURL string `json:"baseURL"`

	// insecure is Allow where baseURL may be http or ws. Omitted means Deny.
	// +optional
	Insecure Insecure `json:"insecure,omitempty"`

	// credentialsSecretRef names a Secret with the key apiKey, or with the key
	// token for an AppServer. Omitted means no key.
	// +optional
	CredentialsSecretRef *LocalRef `json:"credentialsSecretRef,omitempty"`
}

// Insecure says whether plain http may be used.
// +kubebuilder:validation:Enum=Deny;Allow
type Insecure string

const (
	// InsecureDeny refuses plain http.
	InsecureDeny Insecure = "Deny"
	// InsecureAllow accepts plain http, for tests and private networks.
	InsecureAllow Insecure = "Allow"
)

// AgentTemplate says how agents are made.
type AgentTemplate struct {
	// name of the agents, for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=60
	Name string `json:"name"`

	// model is Letta's handle of the model.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Model string `json:"model"`

	// embedding is Letta's handle of the embedding model, where the back end
	// wants one.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Embedding string `json:"embedding,omitempty"`
}

// AgentSource says which Letta agents keep the memory.
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.id)",message="give exactly one of template and id"
type AgentSource struct {
	// template makes one agent for each project, or one for the team.
	// +optional
	Template *AgentTemplate `json:"template,omitempty"`

	// id names an agent that exists already, for all projects.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	ID string `json:"id,omitempty"`
}

// Store says where segments are kept.
// +kubebuilder:validation:XValidation:rule="(has(self.insecure) && self.insecure == 'Allow') || (self.endpoint.startsWith('https://') && (!has(self.publicEndpoint) || self.publicEndpoint.startsWith('https://')))",message="endpoint and publicEndpoint must be https, or insecure must be Allow"
type Store struct {
	// endpoint is the S3 endpoint as the controller reaches it.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.\[\]:-]+$`
	Endpoint string `json:"endpoint"`

	// publicEndpoint is the S3 endpoint as workstations reach it. Omitted
	// means endpoint.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.\[\]:-]+$`
	PublicEndpoint string `json:"publicEndpoint,omitempty"`

	// insecure is Allow where the endpoints may be http. Omitted means Deny.
	// +optional
	Insecure Insecure `json:"insecure,omitempty"`

	// region of the bucket. Omitted means us-east-1.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// bucket holds everything of this memory.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`
	Bucket string `json:"bucket"`

	// prefix of every key, without a slash at its ends. Omitted means none.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$`
	Prefix string `json:"prefix,omitempty"`

	// credentialsSecretRef names a Secret with the keys accessKeyID and
	// secretAccessKey.
	// +required
	CredentialsSecretRef LocalRef `json:"credentialsSecretRef"`
}

// CaptureProjects says which projects may be heard.
type CaptureProjects struct {
	// include are globs over the remote, as host/path: * within one part, **
	// over parts.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Include []string `json:"include"`

	// exclude are globs that win over include.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Exclude []string `json:"exclude,omitempty"`
}

// Allowance says whether something may be heard.
// +kubebuilder:validation:Enum=Deny;Allow
type Allowance string

const (
	// AllowanceDeny withholds it on the workstation.
	AllowanceDeny Allowance = "Deny"
	// AllowanceAllow hears it as anything else.
	AllowanceAllow Allowance = "Allow"
)

// ToolResults says of which tools the results may be heard.
// +kubebuilder:validation:Enum=Local;All;None
type ToolResults string

const (
	// ToolResultsLocal: of tools that look at or change the workstation's own
	// files and run its commands. What a web page or another server says would
	// speak to every colleague.
	ToolResultsLocal ToolResults = "Local"
	// ToolResultsAll: of every tool.
	ToolResultsAll ToolResults = "All"
	// ToolResultsNone: of none.
	ToolResultsNone ToolResults = "None"
)

// Titles says whether the team sees what sessions are about.
// +kubebuilder:validation:Enum=Show;Hide
type Titles string

const (
	// TitlesShow shows titles, tags, pull requests and branches of Sessions.
	TitlesShow Titles = "Show"
	// TitlesHide leaves them empty.
	TitlesHide Titles = "Hide"
)

// RedactionEffect says what becomes of what a rule finds.
// +kubebuilder:validation:Enum=Hide;Allow
type RedactionEffect string

const (
	// RedactionHide: it is replaced, as a known secret is.
	RedactionHide RedactionEffect = "Hide"
	// RedactionAllow: it stays, although a built-in rule finds it.
	RedactionAllow RedactionEffect = "Allow"
)

// RedactionRule is a rule of the team's own for what may not leave, or for what
// is no secret.
type RedactionRule struct {
	// name of the rule. Findings and placeholders say team- and this.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}$`
	Name string `json:"name"`

	// pattern is an expression in the syntax of RE2 that does not match the
	// empty text. What its first group matches is meant, all of it if it has
	// none.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Pattern string `json:"pattern"`

	// effect says what becomes of what the pattern matches. Allow counts only
	// where it matches all that a rule has found. Omitted means Hide.
	// +optional
	Effect RedactionEffect `json:"effect,omitempty"`
}

// Capture says what may be heard.
type Capture struct {
	// projects that may be heard.
	// +required
	Projects CaptureProjects `json:"projects"`

	// headless says whether records are heard that no person's terminal made,
	// such as those of scripts. Omitted means Deny.
	// +optional
	Headless Allowance `json:"headless,omitempty"`

	// thinking says whether the model's thoughts are heard. Omitted means Deny.
	// +optional
	Thinking Allowance `json:"thinking,omitempty"`

	// toolResults says of which tools the results are heard. Calls always are.
	// Omitted means Local.
	// +optional
	ToolResults ToolResults `json:"toolResults,omitempty"`

	// titles says whether Sessions show title, tag, pull request and branch,
	// which the whole team can read. Omitted means Show.
	// +optional
	Titles Titles `json:"titles,omitempty"`

	// outsideGit says whether records are heard that were written in no
	// repository, or in one without a remote. Their project is local/ and 8 hex
	// digits. Omitted means Deny.
	// +optional
	OutsideGit Allowance `json:"outsideGit,omitempty"`

	// redact are rules besides the built-in ones, on the workstation and again
	// in the cluster. A repository can add rules that hide, and none that allow.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Redact []RedactionRule `json:"redact,omitempty"`
}

// Recall says what developers are shown.
type Recall struct {
	// mode is Brief, Whisper, Full or Off. Omitted means Brief.
	// +optional
	Mode RecallMode `json:"mode,omitempty"`

	// maxCharacters bounds what one prompt is given. Omitted means 4000.
	// +optional
	// +kubebuilder:validation:Minimum=200
	// +kubebuilder:validation:Maximum=9500
	MaxCharacters *int32 `json:"maxCharacters,omitempty"`
}

// DeliveryPolicy says how words are given to Letta.
type DeliveryPolicy struct {
	// maxBatchBytes bounds the words of one turn. Omitted means 32768.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=262144
	MaxBatchBytes *int32 `json:"maxBatchBytes,omitempty"`

	// maxConcurrentTurns bounds the turns that run at one time. Omitted means
	// 4.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MaxConcurrentTurns *int32 `json:"maxConcurrentTurns,omitempty"`

	// turnTimeoutSeconds bounds one turn. A turn that takes longer is
	// cancelled. Omitted means 600.
	// +optional
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=3600
	TurnTimeoutSeconds *int32 `json:"turnTimeoutSeconds,omitempty"`

	// minIntervalSeconds is the least time between the beginnings of two turns
	// of one session that goes on; what comes meanwhile goes into one turn.
	// Omitted means 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	MinIntervalSeconds *int32 `json:"minIntervalSeconds,omitempty"`
}

// Budget bounds what a memory costs.
type Budget struct {
	// dailyTokens bounds the tokens of one day, by UTC. One owner gets at most
	// a quarter of them, and imports a fifth. Omitted means 2000000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000000
	DailyTokens *int64 `json:"dailyTokens,omitempty"`
}

// TeamMemorySpec says how a team's memory is made and kept.
type TeamMemorySpec struct {
	// letta is the back end that thinks.
	// +required
	Letta Letta `json:"letta"`

	// agent says which agents keep the memory.
	// +required
	Agent AgentSource `json:"agent"`

	// scope is Project or Team. Omitted means Project.
	// +optional
	Scope Scope `json:"scope,omitempty"`

	// store is where segments are kept.
	// +required
	Store Store `json:"store"`

	// capture says what may be heard.
	// +required
	Capture Capture `json:"capture"`

	// recall says what developers are shown.
	// +optional
	Recall Recall `json:"recall,omitzero"`

	// whispers says who can read what the memory says to a person: Owner or
	// Team. Omitted means Owner.
	// +optional
	Whispers Whispers `json:"whispers,omitempty"`

	// delivery says how words are given to Letta.
	// +optional
	Delivery DeliveryPolicy `json:"delivery,omitzero"`

	// budget bounds what the memory costs.
	// +optional
	Budget Budget `json:"budget,omitzero"`

	// suspend holds work back without losing any. Omitted means None.
	// +optional
	Suspend Suspend `json:"suspend,omitempty"`

	// onSecret says what becomes of a segment in which the controller finds a
	// secret that the workstation had missed. Omitted means Redact.
	// +optional
	OnSecret OnSecret `json:"onSecret,omitempty"`

	// retention says how long things are kept.
	// +optional
	Retention Retention `json:"retention,omitzero"`

	// deletionPolicy says what becomes of a Session's archive and conversation
	// when somebody deletes the Session. Omitted means Retain.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// scrubs are texts that got into the memory and must go. undersong admin
	// scrub writes an entry; none holds the text.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	Scrubs []Scrub `json:"scrubs,omitempty"`
}

// ScrubMode says what becomes of a text that is found.
// +kubebuilder:validation:Enum=Look;Remove
type ScrubMode string

const (
	// ScrubLook: it is counted, and nothing is changed.
	ScrubLook ScrubMode = "Look"
	// ScrubRemove: it is taken out, and replaced wherever it comes from anew as
	// long as the entry is there.
	ScrubRemove ScrubMode = "Remove"
)

// Scrub is one text that must go, known by its length and by a digest under a key
// that only the controller can open.
// +kubebuilder:validation:XValidation:rule="self.digest == oldSelf.digest && self.length == oldSelf.length && self.sealedKey == oldSelf.sealedKey",message="another text needs another id"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode || self.mode == 'Remove'",message="what is removed is not looked for only: take the entry away"
type Scrub struct {
	// id names the entry. Placeholders say scrub- and this.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}$`
	ID string `json:"id"`

	// mode is Look or Remove.
	// +required
	Mode ScrubMode `json:"mode"`

	// length of the text in bytes.
	// +required
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=8192
	Length int32 `json:"length"`

	// digest of the text under the key, in hex.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{72}$`
	Digest string `json:"digest"`

	// sealedKey is the key, sealed to status.scrubKey and used for this entry
	// alone.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	SealedKey string `json:"sealedKey"`
}

// ScrubPhase says how far a scrub is.
// +kubebuilder:validation:Enum=Running;Done;Refused
type ScrubPhase string

const (
	// ScrubRunning: it is looked for; what is found so far is counted.
	ScrubRunning ScrubPhase = "Running"
	// ScrubDone: every place was looked at once from its beginning.
	ScrubDone ScrubPhase = "Done"
	// ScrubRefused: the entry cannot be used; message says why.
	ScrubRefused ScrubPhase = "Refused"
)

// ScrubPlace is a kind of place in which a text can stand.
// +kubebuilder:validation:Enum=Archive;Conversations;Blocks;BlockTexts;MemoryBlocks;Sessions;Records;Uploads
type ScrubPlace string

const (
	// ScrubArchive: the segments of the archive.
	ScrubArchive ScrubPlace = "Archive"
	// ScrubConversations: the conversations of the memory's agents.
	ScrubConversations ScrubPlace = "Conversations"
	// ScrubBlocks: the blocks of the memory's agents.
	ScrubBlocks ScrubPlace = "Blocks"
	// ScrubBlockTexts: the texts of blocks in the store, of all revisions.
	ScrubBlockTexts ScrubPlace = "BlockTexts"
	// ScrubMemoryBlocks: MemoryBlock objects.
	ScrubMemoryBlocks ScrubPlace = "MemoryBlocks"
	// ScrubSessions: Session objects.
	ScrubSessions ScrubPlace = "Sessions"
	// ScrubRecords: what the archive says of sessions as a whole.
	ScrubRecords ScrubPlace = "Records"
	// ScrubUploads: what workstations have sent and nobody has verified yet.
	ScrubUploads ScrubPlace = "Uploads"
)

// ScrubFound counts what was found in one kind of place.
type ScrubFound struct {
	// place is the kind of place.
	// +required
	Place ScrubPlace `json:"place"`

	// looked is how many things were looked at.
	// +required
	// +kubebuilder:validation:Minimum=0
	Looked int64 `json:"looked"`

	// found is in how many of them the text stood.
	// +required
	// +kubebuilder:validation:Minimum=0
	Found int64 `json:"found"`

	// changed is how many of those do not have it any more.
	// +required
	// +kubebuilder:validation:Minimum=0
	Changed int64 `json:"changed"`
}

// ScrubStatus is what became of one scrub.
type ScrubStatus struct {
	// id of the entry in spec.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,32}$`
	ID string `json:"id"`

	// mode that it speaks of.
	// +required
	Mode ScrubMode `json:"mode"`

	// phase is Running, Done or Refused.
	// +required
	Phase ScrubPhase `json:"phase"`

	// finishedAt is when it was Done.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// message says why it is refused, or what it waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// found counts by kind of place.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Found []ScrubFound `json:"found,omitempty"`

	// sessions are the first Sessions in whose words it stood.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	Sessions []string `json:"sessions,omitempty"`

	// notReached is what stays, and who can do something about it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	NotReached []string `json:"notReached,omitempty"`
}

// OnSecret says what becomes of a segment with a secret in it. The secret is
// removed from the archived copy in any case.
// +kubebuilder:validation:Enum=Redact;Quarantine
type OnSecret string

const (
	// OnSecretRedact: the rest of the words is delivered.
	OnSecretRedact OnSecret = "Redact"
	// OnSecretQuarantine: nothing of the segment, and of what that workstation
	// said after it, is delivered until somebody has looked.
	OnSecretQuarantine OnSecret = "Quarantine"
)

// DeletionPolicy says what goes with a deleted Session.
// +kubebuilder:validation:Enum=Retain;Erase
type DeletionPolicy string

const (
	// DeletionRetain: archive and conversation stay.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionErase: they are erased before the Session is gone.
	DeletionErase DeletionPolicy = "Erase"
)

// Retention says how long things are kept after the last activity of a
// session.
type Retention struct {
	// sessionDays is after how many days a Session that is Idle or Ended, and
	// caught up, is deleted. Omitted means 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3650
	SessionDays *int32 `json:"sessionDays,omitempty"`

	// transcriptDays is after how many days the archive of a session is
	// deleted, and its conversation at Letta where the back end can. A Session
	// that is still there keeps both. Omitted means 90.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3650
	TranscriptDays *int32 `json:"transcriptDays,omitempty"`
}

// ProjectAgent is the agent of one project.
type ProjectAgent struct {
	// project is the remote. Empty for the team's one agent.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Project string `json:"project"`

	// agentID is Letta's id. Opaque.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	AgentID string `json:"agentID"`
}

// DayUsage is what a memory cost on one day.
type DayUsage struct {
	// day, by UTC.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	Day string `json:"day"`

	// tokens spent on that day.
	// +required
	// +kubebuilder:validation:Minimum=0
	Tokens int64 `json:"tokens"`

	// importTokens are those of them that imports took.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ImportTokens int64 `json:"importTokens,omitempty"`

	// percent of the day's budget that is spent. It can pass 100 by the turns
	// that ran when the budget ended.
	// +required
	// +kubebuilder:validation:Minimum=0
	Percent int32 `json:"percent"`
}

// TeamMemoryStatus is what the controller says of a memory.
type TeamMemoryStatus struct {
	// observedGeneration is the generation that Ready or Stalled speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, and Reconciling or Stalled while True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// agents has the newest agents. The tags at Letta are the truth.
	// +optional
	// +listType=map
	// +listMapKey=project
	// +kubebuilder:validation:MaxItems=256
	Agents []ProjectAgent `json:"agents,omitempty"`

	// sessions is the number of Sessions of this memory. While all is well it
	// is renewed once a minute.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sessions int64 `json:"sessions,omitempty"`

	// lagging is the number of Sessions with lines that are not processed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Lagging int64 `json:"lagging,omitempty"`

	// usage is what the memory cost on the newest day with a turn. It is
	// renewed with sessions.
	// +optional
	Usage *DayUsage `json:"usage,omitempty"`

	// segmentFormat is the newest segment format this controller accepts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SegmentFormat int32 `json:"segmentFormat,omitempty"`

	// scrubKey is the public key that the keys of spec.scrubs are sealed to. Its
	// other half is in the store.
	// +optional
	// +kubebuilder:validation:Pattern=`^age1[02-9ac-hj-np-z]{58}$`
	ScrubKey string `json:"scrubKey,omitempty"`

	// scrubs says what became of each of spec.scrubs.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	Scrubs []ScrubStatus `json:"scrubs,omitempty"`
}

// TeamMemory is the memory of one team.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tmem,categories=undersong
// +kubebuilder:printcolumn:name="Backend",type=string,JSONPath=`.spec.letta.backend`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.scope`
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.sessions`
// +kubebuilder:printcolumn:name="Lagging",type=integer,JSONPath=`.status.lagging`
// +kubebuilder:printcolumn:name="Budget",type=integer,JSONPath=`.status.usage.percent`,description="percent of the budget spent on the newest day with a turn"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="the name of a TeamMemory has at most 40 characters"
type TeamMemory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec TeamMemorySpec `json:"spec"`
	// +optional
	Status TeamMemoryStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the status.
func (m *TeamMemory) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (m *TeamMemory) SetConditions(c []metav1.Condition) { m.Status.Conditions = c }

// TeamMemoryList is a list of TeamMemories.
// +kubebuilder:object:root=true
type TeamMemoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TeamMemory `json:"items"`
}
