package transcript

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"iter"
)

// Known is a set of records that were seen before, in this file or in another
// session's. The zero value is ready, and keeps all of it in memory.
type Known struct{ messages table }

// NewKnown returns an empty set that keeps what is much in the room.
func NewKnown(room Room) *Known { return &Known{messages: table{slots: paged{room: room}}} }

// Novelty says how a record stands to those before it.
type Novelty int

const (
	// New: no record before had this uuid, or it has none.
	New Novelty = iota
	// Repeated: one had it, and said the same.
	Repeated
	// Conflicting: one had it, and said something else. The first one stands.
	Conflicting
	// Disputed is Conflicting, and not for the first time.
	Disputed
)

// conflicted marks the number of a message that came with other words, too. The
// rest of the number is a sum of its words.
const conflicted = 1

// Add puts a record into the set, if it has a uuid, and says whether it was there.
func (k *Known) Add(r Record) Novelty {
	if r.UUID == "" {
		return New
	}
	before, known := k.messages.get(r.UUID)
	now := maphash.Bytes(k.messages.seedOf(), r.raw[r.message.Start:r.message.End]) &^ conflicted
	switch {
	case !known:
		k.messages.set(r.UUID, now)
		return New
	case before&^conflicted == now:
		return Repeated
	case before&conflicted != 0:
		return Disputed
	}
	k.messages.set(r.UUID, before|conflicted)
	return Conflicting
}

// Err returns the first error of the room; nothing that the set has said since
// counts.
func (k *Known) Err() error { return k.messages.slots.err }

// Close drops what the set has in the room.
func (k *Known) Close() error { return k.messages.slots.close() }

// Inherited reports whether a record repeats one of another session, in whose
// file the records of this set were: a fork copies records with their uuids, a
// branch gives them new ones and says where they come from. It is a hint for
// people; what was delivered already is known from the delivery's own set.
func (k *Known) Inherited(r Record) bool {
	if r.ForkedFrom != "" {
		return true
	}
	_, known := k.messages.get(r.UUID)
	return known
}

// Marks are ids, each with marks of the caller's. The zero value is ready, and
// keeps all of them in memory.
type Marks struct{ ids table }

// NewMarks returns an empty set that keeps what is much in the room.
func NewMarks(room Room) *Marks { return &Marks{table{slots: paged{room: room}}} }

// Set adds an id, or marks to it.
func (m *Marks) Set(id string, marks uint64) {
	before, _ := m.ids.get(id)
	m.ids.set(id, before|marks)
}

// Get returns the marks of an id, and whether it was added.
func (m *Marks) Get(id string) (marks uint64, known bool) { return m.ids.get(id) }

// Err returns the first error of the room; nothing that was said since counts.
func (m *Marks) Err() error { return m.ids.slots.err }

// Close drops what is in the room.
func (m *Marks) Close() error { return m.ids.slots.close() }

// Tree finds the branches that a person left by going back to an earlier point
// and typing on from there. Nothing in the file marks them. The zero value is
// ready, and keeps all of it in memory.
type Tree struct {
	index table // the number of a record, by uuid
	nodes paged
	n     int64
	ids   paged // the uuids in order, each behind its length
	end   int64 // of ids
}

// NewTree returns an empty tree that keeps what is much in the room.
func NewTree(room Room) *Tree {
	at := paged{room: room}
	return &Tree{index: table{slots: at}, nodes: at, ids: at}
}

// A node is nodeSize bytes: the number of its parent, or noParent or lostParent;
// the number behind that of the last prompt that hangs from it, 0 for none; and
// what it is.
const (
	nodeSize   = 16
	noParent   = 1<<32 - 1 // a root
	lostParent = 1<<32 - 2 // the parent is not there
	maxNodes   = 1<<32 - 3 // what comes behind so many has no place in the tree

	isPrompt   = 1 << 0 // a person's words begin a turn here
	isBoundary = 1 << 1 // a compaction
	isMessage  = 1 << 2 // a message, or it holds one in the branch that begins here
	isLeft     = 1 << 3
)

func (t *Tree) node(i int64) (parent, prompt uint32, flags byte) {
	b := t.nodes.read(i*nodeSize, nodeSize)
	return binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), b[8]
}

// Fold takes a record of the main file into account. Records of another session
// and of agents have no place in the tree. Of records with one uuid the first
// stands.
func (t *Tree) Fold(r Record, sessionID string) {
	if r.UUID == "" || !r.belongs(MainStream, sessionID) || t.n >= maxNodes {
		return
	}
	if _, known := t.index.get(r.UUID); known {
		return
	}
	parent := uint32(lostParent)
	if r.ParentUUID != "" {
		if n, known := t.index.get(r.ParentUUID); known {
			parent = uint32(n) //nolint:gosec // below maxNodes
		}
	} else if r.rooted {
		parent = noParent
	}
	var flags byte
	switch {
	case r.Type == "system" && r.Subtype == "compact_boundary":
		flags = isBoundary
	case r.Type == "user" && len(r.Entries(MainStream, sessionID)) > 0:
		flags = isMessage | isPrompt
	case r.Type == "user" || r.Type == "assistant":
		flags = isMessage
	}
	b := t.nodes.write(t.n*nodeSize, nodeSize)
	binary.LittleEndian.PutUint32(b, parent)
	b[8] = flags
	t.index.set(r.UUID, uint64(t.n)) //nolint:gosec // below maxNodes
	t.n++
	if flags&isPrompt != 0 && parent < lostParent {
		binary.LittleEndian.PutUint32(t.nodes.write(int64(parent)*nodeSize+4, 4), uint32(t.n)) //nolint:gosec // below maxNodes
	}
	t.end = t.ids.append(t.end, binary.AppendUvarint(nil, uint64(len(r.UUID))))
	t.end = t.ids.append(t.end, []byte(r.UUID))
}

// Abandoned returns the uuids of the records on branches that were left, in file
// order, those without words among them. It is advice: a branch that cannot be
// told from parallel calls of tools, or from a file whose links are broken, is
// not among them.
//
// A branch was left when a prompt hangs from the same record as it and comes
// later. Calls and results branch, too, but no prompt follows from there. A
// prompt without a parent leaves everything since the last compaction.
func (t *Tree) Abandoned() iter.Seq[string] {
	return func(yield func(string) bool) {
		t.mark()
		at := int64(0)
		for i := range t.n {
			size, n := binary.Uvarint(t.ids.next(at, int(min(binary.MaxVarintLen64, t.end-at))))
			if n <= 0 || t.Err() != nil {
				return
			}
			at += int64(n)
			parent, _, flags := t.node(i)
			if flags&isLeft == 0 && parent < lostParent {
				if _, _, above := t.node(int64(parent)); above&isLeft != 0 {
					flags |= isLeft
					t.nodes.write(i*nodeSize+8, 1)[0] = flags
				}
			}
			if flags&isLeft != 0 && !yield(string(t.ids.next(at, int(size)))) { //nolint:gosec // that of a string
				return
			}
			at += int64(size) //nolint:gosec // that of a string
		}
	}
}

// mark marks the records at which a person left a branch, from the last one to
// the first: parents come before what hangs from them.
func (t *Tree) mark() {
	root := uint32(0) // behind the last prompt without a parent, since the next compaction
	for i := t.n - 1; i >= 0 && t.Err() == nil; i-- {
		parent, _, flags := t.node(i)
		flags &^= isLeft
		prompt := root
		if parent < lostParent {
			_, prompt, _ = t.node(int64(parent))
			if flags&isMessage != 0 {
				t.nodes.write(int64(parent)*nodeSize+8, 1)[0] |= isMessage
			}
		} else if parent == noParent && flags&isPrompt != 0 && root == 0 {
			root = uint32(i + 1) //nolint:gosec // below maxNodes
		}
		if parent != lostParent && flags&isBoundary == 0 && flags&isMessage != 0 && i+1 < int64(prompt) {
			flags |= isLeft
		}
		if flags&isBoundary != 0 {
			root = 0
		}
		t.nodes.write(i*nodeSize+8, 1)[0] = flags
	}
}

// Err returns the first error of the room; what the tree says then does not
// count.
func (t *Tree) Err() error { return errors.Join(t.index.slots.err, t.nodes.err, t.ids.err) }

// Close drops what the tree has in the room.
func (t *Tree) Close() error {
	return errors.Join(t.index.slots.close(), t.nodes.close(), t.ids.close())
}
