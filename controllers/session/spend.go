package session

import (
	"context"
	"errors"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/budget"
	"github.com/undersong-dev/undersong/internal/letta"
)

// templateBytes is about what an agent reads at each turn besides its blocks
// and the words: its instructions and the descriptions of its tools.
const templateBytes = 8 << 10

// bill returns what counts the turn under id when it ends, for the memory's
// budget at once and for the session with its next status write. A turn is
// counted once, when it is known that it ran. sent are the bytes of the
// message.
func (r *Reconciler) bill(s *scope, id string, imported bool, sent int) func(letta.Turn, error) {
	key, memory, owner := s.key, s.mem.UID, s.ses.Spec.Owner
	read := templateBytes + sent
	for _, b := range s.ses.Status.SyncState.Blocks {
		read += int(b.Bytes)
	}
	return func(turn letta.Turn, err error) {
		if err != nil && !errors.Is(err, letta.ErrTurnFailed) {
			return // nothing was sent, or it is looked up
		}
		c := cost{source: v1alpha1.UsageReported, tokens: turn.Usage.TotalTokens, imported: imported}
		if !turn.Usage.Reported {
			c.source, c.tokens = v1alpha1.UsageEstimated, budget.Estimate(read+len(turn.Text()))
		}
		if !r.Turns.owe(key, id, c) {
			return
		}
		r.Budget.Add(memory, owner, imported, c.tokens)
		tokens.WithLabelValues(string(c.source)).Add(float64(c.tokens))
	}
}

// cost is what a turn cost.
type cost struct {
	tokens   int64
	source   v1alpha1.UsageSource
	imported bool
}

// spend notes in status what the session's turns cost since it was last
// written. It is called only where status is written anyway.
func (r *Reconciler) spend(s *scope) {
	costs := r.Turns.owed(s.key)
	if len(costs) == 0 {
		return
	}
	u := &s.ses.Status.Usage
	if day := budget.Day(r.Clock.Now()); u.Day != day {
		u.Day, u.DayTokens, u.DayImportTokens = day, 0, 0
	}
	for _, c := range costs {
		u.Tokens += c.tokens
		u.DayTokens += c.tokens
		if c.imported {
			u.DayImportTokens += c.tokens
		}
		u.Source = c.source
	}
	s.after = append(s.after, func(context.Context) { r.Turns.paid(s.key, len(costs)) })
}
