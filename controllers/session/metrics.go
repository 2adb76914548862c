package session

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// Metrics of this package; docs/spec/metrics.md lists them all. They speak of
// work done; how far it is behind is told by controllers/lag, which reads the
// cache.
//
//	undersong_segments_verified_total      segments copied to the archive
//	undersong_second_pass_findings_total   secrets found in the cluster, by rule; the rules are the redactor's, a fixed set
//	undersong_gaps_total                   segments that were lost, and archived as gaps
//	undersong_turns_total                  Letta turns, by result
//	undersong_whispers_total               answers of agents, by what became of them
//	undersong_turn_retries_total           further attempts of a delivery
//	undersong_resends_total                deliveries sent again because nobody could say what became of them
//	undersong_parked_deliveries_total      deliveries given up for now
//	undersong_tokens_total                 tokens of turns, by source
//	undersong_turn_wait_seconds            how long sessions waited for a place among their memory's turns
//	undersong_turn_queue_sessions          sessions that wait for one now
//	undersong_turn_queue_oldest_seconds    how long the first of them has waited
var (
	segmentsVerified = prometheus.NewCounter(prometheus.CounterOpts{Name: "undersong_segments_verified_total", Help: "Segments checked and copied to the archive."})
	secondPass       = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "undersong_second_pass_findings_total", Help: "Secrets that were found in the cluster and removed, by rule."}, []string{"rule"})
	gaps             = prometheus.NewCounter(prometheus.CounterOpts{Name: "undersong_gaps_total", Help: "Segments that could not be sent again, and are gaps in the archive."})
	turns            = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "undersong_turns_total", Help: "Letta turns, by result."}, []string{"result"})
	whispers         = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "undersong_whispers_total", Help: "Answers of agents, by what became of them."}, []string{"result"})
	retries          = prometheus.NewCounter(prometheus.CounterOpts{Name: "undersong_turn_retries_total", Help: "Further attempts of deliveries."})
	resends          = prometheus.NewCounter(prometheus.CounterOpts{Name: "undersong_resends_total", Help: "Deliveries sent again because nobody could say what became of them."})
	parkings         = prometheus.NewCounter(prometheus.CounterOpts{Name: "undersong_parked_deliveries_total", Help: "Deliveries given up for now after many attempts."})
	tokens           = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "undersong_tokens_total", Help: "Tokens of Letta turns, by source."}, []string{"source"})
	turnWait         = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "undersong_turn_wait_seconds", Help: "How long sessions waited for a place among their memory's turns.",
		Buckets: []float64{0.1, 1, 5, 15, 60, 300, 900, 3600},
	})
)

// Results of a turn.
const (
	resultReplied   = "replied"
	resultFailed    = "failed"
	resultUnknown   = "unknown"
	resultCancelled = "cancelled"
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
	for _, r := range []string{resultReplied, resultFailed, resultUnknown, resultCancelled} {
		turns.WithLabelValues(r)
	}
	for _, s := range []v1alpha1.UsageSource{v1alpha1.UsageReported, v1alpha1.UsageEstimated} {
		tokens.WithLabelValues(string(s))
	}
	metrics.Registry.MustRegister(segmentsVerified, secondPass, gaps, turns, whispers, retries, resends, parkings, tokens, turnWait)
}

var (
	queueSessions = prometheus.NewDesc("undersong_turn_queue_sessions", "Sessions that wait for a place among their memory's turns.", nil, nil)
	queueOldest   = prometheus.NewDesc("undersong_turn_queue_oldest_seconds", "How long the first of them has waited; 0 when none waits.", nil, nil)
)

// Describe implements prometheus.Collector.
func (t *Turns) Describe(ch chan<- *prometheus.Desc) {
	ch <- queueSessions
	ch <- queueOldest
}

// Collect implements prometheus.Collector.
func (t *Turns) Collect(ch chan<- prometheus.Metric) {
	n, oldest := t.queue()
	ch <- prometheus.MustNewConstMetric(queueSessions, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(queueOldest, prometheus.GaugeValue, oldest.Seconds())
}
