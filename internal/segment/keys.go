package segment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// The areas of the bucket. A grant reaches the inbox only.
const (
	inboxArea   = "inbox/"
	archiveArea = "archive/"
	stateArea   = "state/"
	blocksArea  = "blocks/"
)

// InboxPrefix is what all slots of a workstation begin with.
func InboxPrefix(workstationUID string) string {
	return inboxArea + part(workstationUID) + "/"
}

// InboxKey is the key of one slot of a workstation's inbox. The workstation is
// named by the uid of its object, so that one that is registered again under the
// same name does not inherit what lies there.
func InboxKey(workstationUID string, slot int64) string {
	return fmt.Sprintf("%s%012d", InboxPrefix(workstationUID), slot)
}

// ArchivePrefix is what everything kept of a session begins with. The owner
// appears as a hash: user names are long, and any character may be in them.
func ArchivePrefix(namespace, owner, session string) string {
	return archiveArea + part(namespace) + "/" + hash(owner) + "/" + part(session) + "/"
}

// ArchiveKey is the key of a verified segment. chain is the head after it.
func ArchiveKey(namespace, owner, session, workstation string, seq int64, chain Sum) string {
	return fmt.Sprintf("%s%s/%012d-%s.jsonl.zst", ArchivePrefix(namespace, owner, session), part(workstation), seq, chain)
}

// SessionKey is the key of what the archive says of a session as a whole. No
// workstation's segments can take it: they are one level below.
func SessionKey(namespace, owner, session string) string {
	return ArchivePrefix(namespace, owner, session) + "session.json"
}

// ParkedKey is the key of a segment that was set aside unopened, as its
// workstation packed it. It lies beside the session's record, and goes with it.
func ParkedKey(namespace, owner, session, workstation string, seq int64) string {
	return fmt.Sprintf("%sparked-%012d-%s", ArchivePrefix(namespace, owner, session), seq, part(workstation))
}

// ArchiveOf is what everything kept of a namespace begins with.
func ArchiveOf(namespace string) string {
	return archiveArea + part(namespace) + "/"
}

// SeenPrefix is what the keys of a session's sets of delivered records begin
// with. Their digest follows.
func SeenPrefix(namespace, session string) string {
	return stateArea + part(namespace) + "/" + part(session) + "/seen-"
}

// SeenKey is the key of a session's set of delivered records, by its digest.
func SeenKey(namespace, session, digest string) string {
	return SeenPrefix(namespace, session) + part(digest)
}

// TryingPrefix is what the keys of the marks of a session's writers begin with.
func TryingPrefix(namespace, session string) string {
	return stateArea + part(namespace) + "/" + part(session) + "/trying-"
}

// TryingKey is the key of the mark that a process leaves while it looks at what
// waits of a writer.
func TryingKey(namespace, session, workstation string) string {
	return TryingPrefix(namespace, session) + part(workstation)
}

// BlockKey is the key of the text of one revision of a memory block, by its
// digest.
func BlockKey(namespace, digest string) string {
	return blocksArea + part(namespace) + "/" + part(digest)
}

// part makes one part of a key out of any string. A name stays as it is;
// anything else, which would be empty, too long, climb or split the key, becomes
// ~ and a hash. No name begins with ~, so two strings never share a part.
func part(s string) string {
	if nameLike(s, 128) {
		return s
	}
	return "~" + hash(s)
}

// hash is 128 bits of the sha256 in hex: enough that nobody finds a second
// owner for an archive.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
