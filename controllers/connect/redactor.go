package connect

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
)

// Redactors keeps the redactors of memories whose teams have rules of their own.
type Redactors struct {
	// BuiltIn has the built-in rules alone.
	BuiltIn *redact.Redactor

	mu   sync.Mutex
	made map[types.UID]madeRedactor
}

type madeRedactor struct {
	generation int64
	redactor   *redact.Redactor
	err        error
}

// For returns the redactor of a memory. An error is a Stall: the rules must be
// corrected, and until then nothing is scanned with fewer.
func (r *Redactors) For(m *v1alpha1.TeamMemory) (*redact.Redactor, error) {
	rules := m.Spec.Capture.Redact
	if len(rules) == 0 {
		return r.BuiltIn, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.made[m.UID]; ok && known.generation == m.Generation {
		return known.redactor, known.err
	}
	var options redact.Options
	for _, rule := range rules {
		options.Team = append(options.Team, redact.Rule{Name: rule.Name, Pattern: rule.Pattern, Allow: rule.Effect == v1alpha1.RedactionAllow})
	}
	made := madeRedactor{generation: m.Generation}
	if made.redactor, made.err = redact.New(options); made.err != nil {
		made.err = outcome.Stallf(v1alpha1.InvalidSpecReason, "spec.capture.redact of the TeamMemory %s cannot be used: %v; until it is corrected nothing of this memory is read", m.Name, made.err)
	}
	if r.made == nil {
		r.made = map[types.UID]madeRedactor{}
	}
	r.made[m.UID] = made
	return made.redactor, made.err
}
