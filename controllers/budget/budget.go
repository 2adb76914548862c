// Package budget counts the tokens that each TeamMemory spends in a day, and
// says when they are spent.
//
// What a session spent today stands in its own status, written with what its
// turns brought. From these the first question about a memory is answered in a
// new process; from then on turns are counted as they end. A Session that is
// deleted takes its numbers with it: so the memory's own status, renewed once
// a minute, is the least that a new process believes.
//
// A turn is not cut off in the middle, and nobody knows its cost before its
// end. So a day can cost as much more as the turns that run at one time.
package budget

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
)

const (
	// DefaultDailyTokens is spec.budget.dailyTokens where it is omitted.
	DefaultDailyTokens = 2_000_000
	// ownerPart and importPart are the parts of a day's tokens that one owner,
	// and all imports together, get at most.
	ownerPart  = 4
	importPart = 5
	// MemoryIndex is the index of Sessions by the memory that hears them.
	MemoryIndex = "spec.memoryRef.name"
	// BytesPerToken estimates tokens where nobody counts them.
	BytesPerToken = 4
)

// Estimate is the number of tokens of so many bytes.
func Estimate(bytes int) int64 { return int64(bytes) / BytesPerToken }

// Day names the day of a time, by UTC.
func Day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Ledger counts. It is safe for concurrent use.
type Ledger struct {
	// Reader is the cache, with MemoryIndex.
	Reader client.Reader
	// Clock tells the day.
	Clock clock.PassiveClock

	mu       sync.Mutex
	memories map[types.UID]*spent
}

// spent is what one memory spent on one day.
type spent struct {
	day            string
	total, imports int64
	owners         map[string]int64
}

// Open returns nil while the memory has tokens left for words of this owner,
// and else an outcome that waits for the next day.
func (l *Ledger) Open(ctx context.Context, m *v1alpha1.TeamMemory, owner string, imported bool) error {
	if err := l.Load(ctx, m); err != nil {
		return err
	}
	now := l.Clock.Now()
	l.mu.Lock()
	s := l.todayLocked(m.UID, now)
	total, own, imports := s.total, s.owners[owner], s.imports
	l.mu.Unlock()
	limit := Limit(m)
	tomorrow := now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	spent := func(what string, n int64) error {
		return outcome.Waitf(v1alpha1.BudgetExhaustedReason, tomorrow.Sub(now),
			"%s %d tokens that TeamMemory %s has for a day; deliveries continue on %s at 00:00 UTC, or when spec.budget.dailyTokens is raised", what, n, m.Name, Day(tomorrow))
	}
	switch {
	case total >= limit:
		return spent("spent are the", limit)
	case own >= atLeastOne(limit/ownerPart):
		return spent("this owner has spent a quarter of the", limit)
	case imported && imports >= atLeastOne(limit/importPart):
		return spent("imports have spent a fifth of the", limit)
	}
	return nil
}

// Limit is the number of tokens of one day.
func Limit(m *v1alpha1.TeamMemory) int64 {
	if n := m.Spec.Budget.DailyTokens; n != nil {
		return *n
	}
	return DefaultDailyTokens
}

func atLeastOne(n int64) int64 { return max(n, 1) }

// Add counts what a turn cost. The memory is loaded before; one that is not, or
// was forgotten meanwhile, is counted from status.
func (l *Ledger) Add(memory types.UID, owner string, imported bool, tokens int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memories[memory] == nil {
		return
	}
	s := l.todayLocked(memory, l.Clock.Now())
	s.total += tokens
	s.owners[owner] += tokens
	if imported {
		s.imports += tokens
	}
}

// Today is what the memory spent today, nil if nothing.
func (l *Ledger) Today(ctx context.Context, m *v1alpha1.TeamMemory) (*v1alpha1.DayUsage, error) {
	if err := l.Load(ctx, m); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.todayLocked(m.UID, l.Clock.Now())
	if s.total == 0 {
		return nil, nil //nolint:nilnil // nothing is an answer
	}
	return &v1alpha1.DayUsage{Day: s.day, Tokens: s.total, ImportTokens: s.imports, Percent: percent(s.total, Limit(m))}, nil
}

// percent rounds down, so that 100 means that nothing is left.
func percent(part, whole int64) int32 {
	return int32(min(float64(part)/float64(whole)*100, 1_000_000))
}

// Forget drops what is known of a memory that was deleted.
func (l *Ledger) Forget(memory types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.memories, memory)
}

// todayLocked is the memory's entry, emptied when the day is over. The caller
// holds mu.
func (l *Ledger) todayLocked(memory types.UID, now time.Time) *spent {
	if l.memories == nil {
		l.memories = map[types.UID]*spent{}
	}
	s := l.memories[memory]
	if day := Day(now); s == nil || s.day != day {
		s = &spent{day: day, owners: map[string]int64{}}
		l.memories[memory] = s
	}
	return s
}

// Load reads what the Sessions spent today, once for each memory. Open and
// Today do so, too. It must come before Add and before a status is written that
// has what is added.
func (l *Ledger) Load(ctx context.Context, m *v1alpha1.TeamMemory) error {
	l.mu.Lock()
	known := l.memories[m.UID] != nil
	l.mu.Unlock()
	if known {
		return nil
	}
	var list v1alpha1.SessionList
	if err := l.Reader.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingFields{MemoryIndex: m.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Sessions: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memories[m.UID] != nil {
		return nil // somebody was quicker, and turns may have been counted since
	}
	s := l.todayLocked(m.UID, l.Clock.Now())
	for i := range list.Items {
		u := &list.Items[i].Status.Usage
		if u.Day != s.day {
			continue
		}
		s.total += u.DayTokens
		s.imports += u.DayImportTokens
		s.owners[list.Items[i].Spec.Owner] += u.DayTokens
	}
	if u := m.Status.Usage; u != nil && u.Day == s.day {
		s.total, s.imports = max(s.total, u.Tokens), max(s.imports, u.ImportTokens)
	}
	return nil
}
