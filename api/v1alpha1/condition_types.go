package v1alpha1

// Condition types. Each says how True is to be read.
const (
	// ReadyCondition sums up the others. True: caught up and healthy. Unknown:
	// under way. False: something failed, its message says what to do.
	ReadyCondition = "Ready"
	// VerifiedCondition is True when every segment named in spec was read,
	// checked against its chain and copied to the archive.
	VerifiedCondition = "Verified"
	// DeliveredCondition is True when every verified line with words was given
	// to Letta, or is known to hold no words.
	DeliveredCondition = "Delivered"
	// PublishedCondition is True when the last answer and the memory behind it
	// stand in status and in MemoryBlocks.
	PublishedCondition = "Published"
	// GrantedCondition is True when the Workstation's newest grant request was
	// answered.
	GrantedCondition = "Granted"
	// ReconcilingCondition is present, and True, only while work goes on.
	ReconcilingCondition = "Reconciling"
	// StalledCondition is present, and True, only while a person must act.
	StalledCondition = "Stalled"
)

// Reasons of conditions. A new one needs a comment here and a row in the spec
// page of each kind that uses it.
const (
	// SucceededReason: the condition is True.
	SucceededReason = "Succeeded"
	// ProgressingReason: work goes on and nothing has failed.
	ProgressingReason = "Progressing"
	// ProgressingWithRetryReason: the last try failed and is repeated.
	ProgressingWithRetryReason = "ProgressingWithRetry"
	// SuspendedReason: TeamMemory.spec.suspend holds this back.
	SuspendedReason = "Suspended"
	// DependencyNotReadyReason: an object that this one names is missing or
	// not ready.
	DependencyNotReadyReason = "DependencyNotReady"
	// InvalidSpecReason: the spec cannot be acted on and must be changed.
	InvalidSpecReason = "InvalidSpec"
	// StoreUnavailableReason: the object store does not answer.
	StoreUnavailableReason = "StoreUnavailable"
	// StoreAccessDeniedReason: the object store refuses the credentials.
	StoreAccessDeniedReason = "StoreAccessDenied"
	// BucketNotFoundReason: the object store has no such bucket.
	BucketNotFoundReason = "BucketNotFound"
	// SegmentMissingReason: a segment that spec names is not in the inbox.
	SegmentMissingReason = "SegmentMissing"
	// SegmentCorruptReason: a segment does not fit its chain.
	SegmentCorruptReason = "SegmentCorrupt"
	// UnsupportedVersionReason: a segment has a newer format than this
	// controller reads.
	UnsupportedVersionReason = "UnsupportedVersion"
	// SecretFoundReason: a segment is held because of a secret in it.
	SecretFoundReason = "SecretFound"
	// InboxFullReason: too much waits in the Workstation's inbox for another
	// grant.
	InboxFullReason = "InboxFull"
	// PolicyMissingReason: an admission policy is missing or weakened, so that
	// grants would not be safe.
	PolicyMissingReason = "PolicyMissing"
	// LettaUnavailableReason: the Letta back end does not answer.
	LettaUnavailableReason = "LettaUnavailable"
	// LettaRejectedReason: the Letta back end refuses the request or the key.
	LettaRejectedReason = "LettaRejected"
	// AgentNotFoundReason: the agent that spec names does not exist.
	AgentNotFoundReason = "AgentNotFound"
	// AgentUnsafeReason: the agent has more tools than memory alone.
	AgentUnsafeReason = "AgentUnsafe"
	// BudgetExhaustedReason: the day's tokens are spent; it goes on the next
	// day.
	BudgetExhaustedReason = "BudgetExhausted"
	// DeliveryParkedReason: a delivery was given up for now, after many turns
	// without an answer.
	DeliveryParkedReason = "DeliveryParked"
	// PutBackReason, of an event: an agent changed a Pinned block, and its text
	// was put back.
	PutBackReason = "PutBack"
	// RestoredReason, of an event: a Learned block has an earlier text again.
	RestoredReason = "Restored"
	// LabelRejectedReason, of an event: an agent keeps memory under names that
	// are no labels; it is not shown.
	LabelRejectedReason = "LabelRejected"
	// AgentBroughtUpReason, of an event: an agent that an older version made got
	// the instruction and the blocks of this one.
	AgentBroughtUpReason = "AgentBroughtUp"
	// AgentKeptReason, of an event: a person changed an agent's instruction, and
	// a newer one is not put in its place.
	AgentKeptReason = "AgentKept"
	// BlockLimitReason, of an event: a memory has more blocks than are shown.
	BlockLimitReason = "BlockLimit"
	// FailedReason: none of the others; the message says what happened.
	FailedReason = "Failed"
)
