package transcript

// KnownType reports whether a type of records was seen or documented before. One
// that is not is read as all others that carry no words, and only counted: new
// releases bring new ones.
func KnownType(name string) bool { return types[name] }

// types are the record types of releases 1.x to 2.1.332.
var types = set(
	// The talk, and what stands between.
	"user", "assistant", "attachment", "system", "progress",
	// What is said of a session; written again and again, the last one counts.
	"summary", "custom-title", "ai-title", "agent-name", "agent-color", "agent-setting", "last-prompt", "task-summary", "tag", "pr-link",
	"mode", "permission-mode", "worktree-state", "relocated", "continued-in", "fork-context-ref", "history-suppression",
	// The program's own books.
	"queue-operation", "file-history-snapshot", "file-history-delta", "attribution-snapshot", "speculation-accept", "content-replacement",
	"marble-origami-commit", "marble-origami-snapshot", "marble-origami-reset", "bridge-session", "atis-latch", "isolation-latch", "cost-state",
	"frame-link", "artifact-comment-monitor", "artifact-autoreact-ledger", "observer-ref", "ended-by-model",
	"api-request-shape", "api-request-blob", "api-request", "tools-used",
	// Ours: what stands for a record that does not leave the workstation.
	"undersong-stub",
)

func set(names ...string) map[string]bool {
	all := make(map[string]bool, len(names))
	for _, name := range names {
		all[name] = true
	}
	return all
}
