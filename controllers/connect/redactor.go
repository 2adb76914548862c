package connect

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
)

// Redactors keeps the redactors of memories whose teams have rules of their own,
// or texts that are taken out.
type Redactors struct {
	// BuiltIn has the built-in rules alone.
	BuiltIn *redact.Redactor
	// Open opens the store, where the key is that opens spec.scrubs. Nil leaves
	// those out: then the rules are only looked at.
	Open *Opener

	mu   sync.Mutex
	made map[types.UID]madeRedactor
}

type madeRedactor struct {
	generation int64
	redactor   *redact.Redactor
	err        error
}

// For returns the redactor of a memory. A Stall says that the rules must be
// corrected, and until then nothing is scanned with fewer.
func (r *Redactors) For(ctx context.Context, m *v1alpha1.TeamMemory) (*redact.Redactor, error) {
	rules := m.Spec.Capture.Redact
	if len(rules) == 0 && (r.Open == nil || !Removes(m)) {
		return r.BuiltIn, nil
	}
	r.mu.Lock()
	known, ok := r.made[m.UID]
	r.mu.Unlock()
	if ok && known.generation == m.Generation {
		return known.redactor, known.err
	}
	var options redact.Options
	for _, rule := range rules {
		options.Team = append(options.Team, redact.Rule{Name: rule.Name, Pattern: rule.Pattern, Allow: rule.Effect == v1alpha1.RedactionAllow})
	}
	whole := true
	if r.Open != nil {
		var err error
		if options.Known, whole, err = r.Open.removed(ctx, m); err != nil {
			return nil, err
		}
	}
	made := madeRedactor{generation: m.Generation}
	if made.redactor, made.err = redact.New(options); made.err != nil {
		made.err = outcome.Stallf(v1alpha1.InvalidSpecReason, "spec.capture.redact of the TeamMemory %s cannot be used: %v; until it is corrected nothing of this memory is read", m.Name, made.err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made == nil {
		r.made = map[types.UID]madeRedactor{}
	}
	if whole { // what could not be opened is perhaps there the next time
		r.made[m.UID] = made
	}
	return made.redactor, made.err
}
