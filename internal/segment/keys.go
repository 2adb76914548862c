package segment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
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

// WriterPrefix is what the keys of a writer's verified segments begin with. A
// chapter is a chain that the writer began anew after the Session had been
// deleted: those behind the first have a folder of their own, so that their
// segments do not mix with those of before.
func WriterPrefix(namespace, owner, session, workstation string, chapter int32) string {
	prefix := ArchivePrefix(namespace, owner, session) + part(workstation) + "/"
	if chapter > 0 {
		prefix += fmt.Sprintf("~%d/", chapter)
	}
	return prefix
}

// ArchiveKey is the key of a verified segment. chain is the head after it.
func ArchiveKey(namespace, owner, session, workstation string, chapter int32, seq int64, chain Sum) string {
	return fmt.Sprintf("%s%012d-%s.jsonl.zst", WriterPrefix(namespace, owner, session, workstation, chapter), seq, chain)
}

// ArchivedSeq is the number of the segment with this key, below the prefix of
// its writer's chapter; ok is false for any other key.
func ArchivedSeq(prefix, key string) (seq int64, ok bool) {
	name, ok := strings.CutPrefix(key, prefix)
	number, chain, cut := strings.Cut(name, "-")
	if !ok || !cut || !strings.HasSuffix(chain, ".jsonl.zst") || strings.Contains(name, "/") {
		return 0, false
	}
	seq, err := strconv.ParseInt(number, 10, 64)
	return seq, err == nil && seq > 0
}

// SessionKey is the key of what the archive says of a session as a whole. No
// workstation's segments can take it: they are one level below.
func SessionKey(namespace, owner, session string) string {
	return ArchivePrefix(namespace, owner, session) + "session.json"
}

// ParkedKey is the key of a segment that was set aside unopened, as its
// workstation packed it. It lies beside the session's record, and goes with it.
func ParkedKey(namespace, owner, session, workstation string, chapter int32, seq int64) string {
	key := fmt.Sprintf("%sparked-%012d-%s", ArchivePrefix(namespace, owner, session), seq, part(workstation))
	if chapter > 0 {
		key += fmt.Sprintf("~%d", chapter)
	}
	return key
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

// ScrubPrefix is what all that is kept about a memory's scrubs begins with.
func ScrubPrefix(namespace, memory string) string {
	return stateArea + part(namespace) + "/scrub-" + part(memory) + "/"
}

// ScrubIdentityKey is the key of the pair that the keys of scrubs are sealed to.
func ScrubIdentityKey(namespace, memory string) string {
	return ScrubPrefix(namespace, memory) + "identity"
}

// ScrubRunKey is the key of what a scrub has done so far.
func ScrubRunKey(namespace, memory, id string) string {
	return ScrubPrefix(namespace, memory) + "run-" + part(id)
}

// BlocksOf is what the keys of all blocks' texts of a namespace begin with.
// Their digest follows.
func BlocksOf(namespace string) string {
	return blocksArea + part(namespace) + "/"
}

// BlockKey is the key of the text of one revision of a memory block, by its
// digest.
func BlockKey(namespace, digest string) string {
	return BlocksOf(namespace) + part(digest)
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
