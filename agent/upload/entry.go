package upload

import (
	"errors"
	"slices"

	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// maxWriters is the bound of Session.spec.writers.
const maxWriters = 8

var (
	// ErrDisagree: the cluster has a chain that the spool never made.
	ErrDisagree = errors.New("spool and cluster disagree about what was uploaded: run undersong reset for this session")
	// ErrWithdrawn: a person deleted the Session.
	ErrWithdrawn = errors.New("the session was deleted in the cluster and stays deleted")
	// ErrNameTaken: a Session of that name has another owner.
	ErrNameTaken = errors.New("the session's name is taken by another owner: ask the team lead to delete that Session")
	// ErrOtherSession: the owner's Session was made for another memory or
	// project, on another workstation.
	ErrOtherSession = errors.New("the session is recorded for another memory or project on another workstation")
	// ErrTooManyWriters: the Session has no place for this workstation.
	ErrTooManyWriters = errors.New("the session has entries of 8 workstations already")
)

// who is the writer on this side.
type who struct {
	owner       string
	memory      string
	workstation string
	branch      string // redacted
}

// plan returns the entry this workstation should have in the live Session, and
// whether that needs a write. It decides from the live object alone, never from
// what an earlier try meant to do.
func plan(live *v1alpha1.Session, state *spool.State, me who) (v1alpha1.Writer, bool, error) {
	if err := compatible(live, state, me); err != nil {
		return v1alpha1.Writer{}, false, err
	}
	mine := writer(live, me.workstation)
	if state.Withdrawn {
		return withdrawn(mine, state)
	}
	ready := state.Ready()
	if mine == nil {
		if len(live.Spec.Writers) >= maxWriters {
			return v1alpha1.Writer{}, false, ErrTooManyWriters
		}
		start, ok := state.At(0)
		if !ok && state.Expired {
			// The Session expired, and this is the next of that name: the record
			// in the archive has what was verified.
			start, ok = state.Verified, true
		}
		if !ok {
			return v1alpha1.Writer{}, false, ErrDisagree // verified before, and now unknown
		}
		entry := describe(state, ready, me)
		entry.PreviousChain = start.Chain
		return entry, true, nil
	}
	there, ok := state.At(mine.Segments)
	if !ok && restored(live, state, me.workstation) {
		entry := describe(state, ready, me)
		entry.PreviousChain = mine.Chain
		return entry, true, nil
	}
	if !ok || there.Chain != mine.Chain {
		return v1alpha1.Writer{}, false, ErrDisagree
	}
	if ready.Segments < there.Segments {
		ready = there // it is there already, whatever our record of the upload says
	}
	entry := describe(state, ready, me)
	entry.PreviousChain = mine.PreviousChain
	if ready.Segments > there.Segments {
		entry.PreviousChain = mine.Chain
	}
	return entry, news(&entry, mine), nil
}

// withdrawn returns the entry of a session that is not sent any more: what the
// cluster has, and that what it asks for is gone.
func withdrawn(mine *v1alpha1.Writer, state *spool.State) (v1alpha1.Writer, bool, error) {
	if mine == nil {
		return v1alpha1.Writer{}, false, ErrWithdrawn
	}
	entry := *mine.DeepCopy()
	entry.Gone = append(entry.Gone, state.Gone...)
	slices.Sort(entry.Gone)
	entry.Gone = slices.Compact(entry.Gone)
	entry.Slots = slices.DeleteFunc(entry.Slots, func(s v1alpha1.Slot) bool { return slices.Contains(entry.Gone, s.Seq) })
	return entry, news(&entry, mine), nil
}

// compatible says whether the live Session may be written for this state.
func compatible(live *v1alpha1.Session, state *spool.State, me who) error {
	switch {
	case live.Spec.Owner != me.owner:
		return ErrNameTaken
	case state.UID != "" && string(live.UID) != state.UID && !Rebuilt(live, state, me.workstation):
		return ErrWithdrawn // and made again by somebody; not by us
	case live.Spec.MemoryRef.Name != me.memory,
		state.Project == nil || live.Spec.Project.Remote != state.Project.Remote:
		return ErrOtherSession
	}
	return nil
}

// Rebuilt reports whether a Session under another uid is the one that the
// state was written for, made again from the archive: it names a head of ours.
func Rebuilt(live *v1alpha1.Session, state *spool.State, workstation string) bool {
	mine := writer(live, workstation)
	if mine == nil || mine.Segments == 0 {
		return false
	}
	mark, ok := state.At(mine.Segments)
	return ok && mark.Chain == mine.Chain
}

// restored reports whether the cluster was restored from an older backup: its
// entry is of before what we remember, and the archive, which it says it has
// caught up with, has a head of ours.
func restored(live *v1alpha1.Session, state *spool.State, workstation string) bool {
	mine := writer(live, workstation)
	if mine == nil || mine.Segments >= state.Verified.Segments || live.Status.SyncState == nil {
		return false
	}
	for _, sync := range live.Status.SyncState.Writers {
		if sync.Workstation == workstation {
			mark, ok := state.At(sync.Verified.Segments)
			return ok && mark.Chain == sync.Verified.Chain
		}
	}
	return false
}

// Behind reports whether the cluster's entry says less than it once did.
func Behind(live *v1alpha1.Session, state *spool.State, workstation string) bool {
	mine := writer(live, workstation)
	return mine != nil && state.Applied != nil && mine.Segments < state.Applied.Segments && restored(live, state, workstation)
}

// describe returns the entry for the segments up to ready.
func describe(state *spool.State, ready spool.Mark, me who) v1alpha1.Writer {
	entry := v1alpha1.Writer{
		Workstation: me.workstation,
		State:       v1alpha1.WriterActive,
		Branch:      me.branch,
		Segments:    ready.Segments,
		Lines:       ready.Lines,
		Bytes:       ready.Bytes,
		Chain:       ready.Chain,
		Gone:        slices.Clone(state.Gone),
	}
	if state.Ended && ready == state.Head {
		entry.State = v1alpha1.WriterEnded
	}
	for _, g := range state.Segments {
		if g.Seq > ready.Segments {
			break
		}
		switch g.SlotState {
		case spool.SlotUploaded:
			entry.Slots = append(entry.Slots, v1alpha1.Slot{Seq: g.Seq, Slot: g.Slot})
		case spool.SlotGone:
			entry.Gone = append(entry.Gone, g.Seq)
		case spool.SlotNone, spool.SlotTaken: // on its way again
		}
	}
	slices.Sort(entry.Gone)
	entry.Gone = slices.Compact(entry.Gone)
	return entry
}

// news says whether the entry tells the cluster anything that the old one did
// not. Slots of verified segments that are still listed are no news: they leave
// with the next write. Neither is a branch alone, unless it is to be hidden.
func news(entry, old *v1alpha1.Writer) bool {
	if entry.Segments != old.Segments || entry.State != old.State || entry.Branch == "" && old.Branch != "" {
		return true
	}
	for _, slot := range entry.Slots {
		if !slices.Contains(old.Slots, slot) {
			return true
		}
	}
	for _, seq := range entry.Gone {
		if !slices.Contains(old.Gone, seq) {
			return true
		}
	}
	return false
}

// due says, without asking the cluster, whether a state has anything that the
// entry last seen there does not.
func due(state *spool.State, me who) bool {
	ready := state.Ready()
	if state.Withdrawn {
		return state.Project != nil && slices.ContainsFunc(state.Gone, func(seq int64) bool {
			return state.Applied == nil || !slices.Contains(state.Applied.Gone, seq)
		})
	}
	if state.Project == nil || ready.Segments == 0 {
		return false
	}
	if state.Applied == nil {
		return true
	}
	if ready.Segments < state.Applied.Segments {
		// A segment that was asked for again is on its way; the entry still
		// counts it.
		if ready, _ = state.At(state.Applied.Segments); ready.Segments != state.Applied.Segments {
			return true
		}
	}
	entry := describe(state, ready, me)
	return news(&entry, state.Applied)
}

// writer returns the entry of a workstation, or nil.
func writer(live *v1alpha1.Session, workstation string) *v1alpha1.Writer {
	for i := range live.Spec.Writers {
		if live.Spec.Writers[i].Workstation == workstation {
			return &live.Spec.Writers[i]
		}
	}
	return nil
}

// total returns the sum of lines with this entry in place of the live one.
func total(live *v1alpha1.Session, entry *v1alpha1.Writer) int64 {
	lines := entry.Lines
	for i := range live.Spec.Writers {
		if w := &live.Spec.Writers[i]; w.Workstation != entry.Workstation {
			lines += w.Lines
		}
	}
	return lines
}
