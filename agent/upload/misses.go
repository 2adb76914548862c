package upload

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/internal/segment"
)

const (
	// maxRefusals is how many sessions in a row the store may refuse before it is
	// taken to refuse everybody.
	maxRefusals = 3

	// grantLife is the longest that a grant is good for, so the least time
	// between two grants that one session's refusals may cost.
	grantLife = time.Hour
)

// misses tell what concerns one session from what concerns the store. A segment
// that is never taken, be it too large for a proxy or unreadable, must hold up
// its own session and no other; a store that is down must not be asked once for
// each session.
type misses struct {
	behind map[string]int       // failures since a session's last success: it is tried after those with fewer
	spent  map[string]time.Time // when a refusal of a session's URL last cost a grant

	// Of one pass.
	took    bool   // the store took a segment
	refused []miss // since then, in a row
}

// miss is one failure that may be its session's own.
type miss struct{ session, message string }

// begin starts a pass.
func (m *misses) begin() { m.took, m.refused = false, nil }

// order puts the sessions that fail behind the others.
func (m *misses) order(sessions []*spool.Session) []*spool.Session {
	if len(m.behind) == 0 {
		return sessions
	}
	behind := make(map[*spool.Session]int, len(sessions))
	for _, session := range sessions {
		behind[session] = m.behind[session.State().SessionID]
	}
	slices.SortStableFunc(sessions, func(a, b *spool.Session) int { return cmp.Compare(behind[a], behind[b]) })
	return sessions
}

// worked forgets the failures of a session.
func (m *misses) worked(id string) {
	delete(m.behind, id)
	delete(m.spent, id)
}

// everybody says whether the newest failure is the store's: there is no answer,
// or it refused several sessions in a row. Where it just took another session's
// segment, one without an answer is not enough: it may be too large for the way.
func (m *misses) everybody(err error) bool {
	most := maxRefusals
	if errors.Is(err, ErrUnreachable) {
		most = 1
		if m.took {
			most = 2
		}
	}
	return len(m.refused) >= most
}

// spends says whether the refusal of a session's URL is taken for the end of the
// grant. It is not when a newer grant did not help.
func (m *misses) spends(id string, now time.Time) bool {
	if at, did := m.spent[id]; did && now.Sub(at).Abs() < grantLife {
		return false
	}
	m.spent[id] = now
	return true
}

// reached follows when the store took a segment.
func (s *Stage) reached(id string) {
	s.alone()
	s.misses.took = true
	s.misses.worked(id)
	s.retries.worked(PartStore)
	s.Trouble.Set(PartStore, "")
}

// alone lets what failed in a row so far be the sessions' own trouble.
func (s *Stage) alone() {
	for _, miss := range s.misses.refused {
		s.retries.failed(PartUpload + miss.session)
		s.Trouble.Set(PartUpload+miss.session, miss.message)
	}
	s.misses.refused = nil
}

// uploadFailed notes why a segment could not be uploaded.
func (s *Stage) uploadFailed(err error, id string, seq int64) {
	s.Log.Info("Upload does not work", "session", id, "segment", seq, "error", err)
	if errors.Is(err, ErrNoSlot) {
		s.Desk.Ask() // the answer wakes the stage
		return
	}
	s.misses.behind[id]++
	if errors.Is(err, ErrForbidden) && s.misses.spends(id, s.Clock.Now()) {
		if worked := s.Grants.Refuse(); !worked {
			// A grant whose first URL is refused: asking in a loop would not help.
			s.Trouble.Set(PartStore, ErrForbidden.Error())
			s.retries.failed(PartStore)
		}
		s.Desk.Ask()
		return
	}
	message := fmt.Sprintf("segment %d of this session does not go up: %s; it is tried again, and other sessions go on", seq, explainStore(err))
	if !ofStore(err) {
		s.retries.failed(PartUpload + id)
		s.Trouble.Set(PartUpload+id, message)
		return
	}
	s.misses.refused = append(s.misses.refused, miss{id, message})
	if s.misses.everybody(err) {
		s.misses.refused = nil
		s.Trouble.Set(PartStore, known(err).Error())
		s.retries.failed(PartStore)
	}
}

// known returns the error of Put that an error is; nil when it is of the disk.
func known(err error) error {
	for _, known := range []error{ErrForbidden, ErrNoBucket, ErrUnreachable, ErrStore} {
		if errors.Is(err, known) {
			return known
		}
	}
	return nil
}

// ofStore says whether an error is of the store, not of the disk.
func ofStore(err error) bool { return known(err) != nil }

// explainStore returns the stable text of an error of Put or of the disk.
func explainStore(err error) string {
	if !ofStore(err) {
		return "it cannot be read or recorded on the local disk"
	}
	said, answered := errors.AsType[*answer](err)
	switch {
	case !answered:
		return known(err).Error()
	case said.status == http.StatusRequestEntityTooLarge:
		return fmt.Sprintf("%s: something before the store takes only smaller objects; whoever runs it should let %d MiB pass", said, segment.MaxPacked>>20)
	}
	return said.Error()
}
