// Package crash names the points at which a test kills the process, one after
// every row of the walk (docs/walk.md).
//
// Point does nothing, and is compiled to nothing, unless the binary is built
// with the tag crashpoints. Then a process whose environment names a point in
// UNDERSONG_CRASH dies there by SIGKILL, so that nothing deferred runs, after
// it has left the file named in UNDERSONG_CRASH_MARK, so that the test can
// prove that the point was reached.
package crash

// Names of the points. Each says what has just become durable or visible.
const (
	// HookNoteWritten: the hook's note is in the notes folder.
	HookNoteWritten = "hook-note-written"
	// HookWhisperClaimed: a whisper is claimed and not printed.
	HookWhisperClaimed = "hook-whisper-claimed"
	// AgentNoteRead: the daemon has taken a note in hand.
	AgentNoteRead = "agent-note-read"
	// AgentLinesRead: lines are read and redacted, nothing is written.
	AgentLinesRead = "agent-lines-read"
	// AgentSegmentWritten: the segment file is durable, the cursor is not.
	AgentSegmentWritten = "agent-segment-written"
	// AgentCursorWritten: segment and cursor are durable.
	AgentCursorWritten = "agent-cursor-written"
	// AgentSlotTaken: the slot is recorded, the object is not uploaded.
	AgentSlotTaken = "agent-slot-taken"
	// AgentUploaded: the object is in the inbox, the upload is not recorded.
	AgentUploaded = "agent-uploaded"
	// AgentSessionCreated: the Session exists without this writer's entry.
	AgentSessionCreated = "agent-session-created"
	// AgentSpecApplied: the writer's entry is applied, not recorded.
	AgentSpecApplied = "agent-spec-applied"
	// AgentVerifiedSeen: status says verified, the spool still has the segment.
	AgentVerifiedSeen = "agent-verified-seen"
	// AgentWhisperStored: the whisper is in the inbox, state files are not
	// written.
	AgentWhisperStored = "agent-whisper-stored"
	// AgentStateWritten: the local state files are replaced.
	AgentStateWritten = "agent-state-written"
	// ControllerGrantSigned: a grant is made, the status does not have it.
	ControllerGrantSigned = "controller-grant-signed"
	// ControllerScanning: a segment is opened and being scanned, nothing is
	// archived.
	ControllerScanning = "controller-scanning"
	// ControllerArchived: segments are in the archive, status does not say so.
	ControllerArchived = "controller-archived"
	// ControllerVerified: status says verified, the inbox is not emptied.
	ControllerVerified = "controller-verified"
	// ControllerAgentCreated: Letta has the agent, the status does not.
	ControllerAgentCreated = "controller-agent-created"
	// ControllerConversationCreated: Letta has the conversation, the status
	// does not.
	ControllerConversationCreated = "controller-conversation-created"
	// ControllerLedgerWritten: the ledger says Sending, nothing is sent.
	ControllerLedgerWritten = "controller-ledger-written"
	// ControllerTurnSent: Letta has finished the turn, nothing is recorded.
	ControllerTurnSent = "controller-turn-sent"
	// ControllerSeenWritten: the seen-set is in the store, status does not
	// name it.
	ControllerSeenWritten = "controller-seen-written"
	// ControllerDelivered: the answer is taken, nothing is published and no status
	// says so.
	ControllerDelivered = "controller-delivered"
	// ControllerBlocksCreated: MemoryBlocks exist, status says nothing of it.
	ControllerBlocksCreated = "controller-blocks-created"
	// ControllerRecordWritten: the archive's record of the session is written,
	// the status that it belongs to is not.
	ControllerRecordWritten = "controller-record-written"
	// ControllerErased: lines are erased from the archive, the request is not
	// answered.
	ControllerErased = "controller-erased"
	// ControllerConversationDeleted: Letta's conversation is gone, the request
	// is not answered.
	ControllerConversationDeleted = "controller-conversation-deleted"
	// ControllerPublished: status has the whisper and the memory's revision.
	ControllerPublished = "controller-published"
)

// All returns every point, in the order of the walk.
func All() []string {
	return []string{
		HookNoteWritten, HookWhisperClaimed,
		AgentNoteRead, AgentLinesRead, AgentSegmentWritten, AgentCursorWritten,
		AgentSlotTaken, AgentUploaded, AgentSessionCreated, AgentSpecApplied,
		ControllerGrantSigned, ControllerScanning, ControllerArchived, ControllerRecordWritten, ControllerVerified,
		ControllerAgentCreated, ControllerConversationCreated,
		ControllerLedgerWritten, ControllerTurnSent, ControllerSeenWritten,
		ControllerDelivered, ControllerBlocksCreated, ControllerPublished,
		ControllerErased, ControllerConversationDeleted,
		AgentVerifiedSeen, AgentWhisperStored, AgentStateWritten,
	}
}
