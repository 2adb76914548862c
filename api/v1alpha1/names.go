package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// SessionName returns the name of the Session for a session id and its owner:
// the id, a dash and 8 hex digits of the owner's sha256, so that nobody can
// take another person's id.
func SessionName(sessionID, owner string) string {
	return sessionID + "-" + shortHash(owner)
}

// MemoryBlockName returns the name of the MemoryBlock for a memory, project
// (empty for the team's one agent) and label.
func MemoryBlockName(memory, project, label string) string {
	head := memory + "-" + strings.ReplaceAll(label, "_", "-")
	// 54 leaves room for the dash and the hash in 63 characters.
	if len(head) > 54 {
		head = head[:54]
	}
	return strings.TrimRight(head, "-") + "-" + shortHash(project+"\n"+label)
}

// shortHash is the first 8 hex digits of the sha256.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}
