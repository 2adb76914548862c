package transcript

import (
	"crypto/sha256"
	"slices"
)

// Known is a set of records that were seen before, in this file or in another
// session's. The zero value is ready.
type Known struct{ messages map[string]sum }

// sum is what is kept of a message to know it again.
type sum [8]byte

// Novelty says how a record stands to those before it.
type Novelty int

const (
	// New: no record before had this uuid, or it has none.
	New Novelty = iota
	// Repeated: one had it, and said the same.
	Repeated
	// Conflicting: one had it, and said something else. The first one stands.
	Conflicting
)

// Add puts a record into the set, if it has a uuid, and says whether it was there.
func (k *Known) Add(r Record) Novelty {
	if r.UUID == "" {
		return New
	}
	full := sha256.Sum256(r.raw[r.message.Start:r.message.End])
	now := sum(full[:len(sum{})])
	before, known := k.messages[r.UUID]
	switch {
	case !known:
		if k.messages == nil {
			k.messages = map[string]sum{}
		}
		k.messages[r.UUID] = now
		return New
	case before != now:
		return Conflicting
	}
	return Repeated
}

// Inherited reports whether a record repeats one of another session, in whose
// file the records of this set were: a fork copies records with their uuids, a
// branch gives them new ones and says where they come from. It is a hint for
// people; what was delivered already is known from the delivery's own set.
func (k *Known) Inherited(r Record) bool {
	_, known := k.messages[r.UUID]
	return known || r.ForkedFrom != ""
}

// Tree finds the branches that a person left by going back to an earlier point
// and typing on from there. Nothing in the file marks them. It remembers some
// hundred bytes for each record that has a uuid; the zero value is ready.
type Tree struct {
	nodes []node
	index map[string]int32 // of nodes, by uuid
	epoch int32            // counts the compactions so far
}

type node struct {
	uuid     string
	parent   int32 // in nodes; -1 for a root, -2 for a record whose parent is not there
	epoch    int32
	prompt   bool // a person's words begin a turn here
	boundary bool
	message  bool
}

const (
	noParent   = -1
	lostParent = -2
)

// Fold takes a record of the main file into account. Records of another session
// and of agents have no place in the tree. Of records with one uuid the first
// stands.
func (t *Tree) Fold(r Record, sessionID string) {
	if r.UUID == "" || !r.belongs(MainStream, sessionID) {
		return
	}
	if _, known := t.index[r.UUID]; known {
		return
	}
	if t.index == nil {
		t.index = map[string]int32{}
	}
	n := node{uuid: r.UUID, parent: noParent}
	if r.ParentUUID != "" {
		if parent, known := t.index[r.ParentUUID]; known {
			n.parent = parent
		} else {
			n.parent = lostParent
		}
	} else if !r.rooted {
		n.parent = lostParent
	}
	n.boundary = r.Type == "system" && r.Subtype == "compact_boundary"
	n.message = r.Type == "user" || r.Type == "assistant"
	n.prompt = r.Type == "user" && len(r.Entries(MainStream, sessionID)) > 0
	if n.boundary {
		t.epoch++
	}
	n.epoch = t.epoch
	t.index[r.UUID] = int32(len(t.nodes)) //nolint:gosec // two thousand million records are no transcript
	t.nodes = append(t.nodes, n)
}

// Abandoned returns the uuids of the records on branches that were left, in file
// order. It is advice: a branch that cannot be told from parallel calls of tools,
// or from a file whose links are broken, is not among them.
//
// A branch was left when a prompt hangs from the same record as it and comes
// later. Calls and results branch, too, but no prompt follows from there. A
// prompt without a parent leaves everything since the last compaction.
func (t *Tree) Abandoned() []string {
	type place struct{ parent, epoch int32 }
	last := map[place]int32{} // the last prompt that hangs there
	at := func(n node) place {
		if n.parent == noParent {
			return place{noParent, n.epoch}
		}
		return place{n.parent, 0}
	}
	for i, n := range t.nodes {
		if n.prompt && n.parent != lostParent {
			last[at(n)] = int32(i)
		}
	}
	left := make([]bool, len(t.nodes))
	holds := make([]bool, len(t.nodes)) // a message, in the branch that begins here
	for i, n := range slices.Backward(t.nodes) {
		holds[i] = holds[i] || n.message
		if n.parent >= 0 && holds[i] {
			holds[n.parent] = true
		}
	}
	var uuids []string
	for i, n := range t.nodes {
		prompt, ok := last[at(n)]
		switch {
		case n.parent >= 0 && left[n.parent]:
			left[i] = true
		case ok && n.parent != lostParent && !n.boundary && holds[i]:
			left[i] = int32(i) < prompt
		}
		if left[i] {
			uuids = append(uuids, n.uuid)
		}
	}
	return uuids
}
