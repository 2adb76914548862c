package session

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metrics of this package. They speak of work done; how far it is behind is
// told by controllers/lag, which reads the cache.
//
//	undersong_segments_verified_total      segments copied to the archive
//	undersong_second_pass_findings_total   secrets found in the cluster, by rule; the rules are the redactor's, a fixed set
//	undersong_turns_total                  Letta turns, by result
//	undersong_whispers_total               answers of agents, by what became of them
//	undersong_resends_total                deliveries sent again because nobody could say what became of them
var (
	segmentsVerified = prometheus.NewCounter(prometheus.CounterOpts{Name: "undersong_segments_verified_total", Help: "Segments checked and copied to the archive."})
	secondPass       = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "undersong_second_pass_findings_total", Help: "Secrets that were found in the cluster and removed, by rule."}, []string{"rule"})
	turns            = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "undersong_turns_total", Help: "Letta turns, by result."}, []string{"result"})
	whispers         = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "undersong_whispers_total", Help: "Answers of agents, by what became of them."}, []string{"result"})
	resends          = prometheus.NewCounter(prometheus.CounterOpts{Name: "undersong_resends_total", Help: "Deliveries sent again because nobody could say what became of them."})
)

// Results of a turn.
const (
	resultReplied = "replied"
	resultFailed  = "failed"
	resultUnknown = "unknown"
)

// What becomes of an answer.
const (
	whisperSealed  = "sealed"
	whisperSilent  = "silent"  // the agent had nothing to say
	whisperLimited = "limited" // one too many within ten minutes
	whisperNobody  = "nobody"  // the owner has no workstation to seal it to
)

func init() {
	for _, r := range []string{whisperSealed, whisperSilent, whisperLimited, whisperNobody} {
		whispers.WithLabelValues(r)
	}
	for _, r := range []string{resultReplied, resultFailed, resultUnknown} {
		turns.WithLabelValues(r)
	}
	metrics.Registry.MustRegister(segmentsVerified, secondPass, turns, whispers, resends)
}
