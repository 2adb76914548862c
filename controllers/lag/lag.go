// Package lag tells Prometheus how far memory is behind. Alerts should speak
// of this, not of whether a process lives.
//
//	undersong_undelivered_lines            lines that are uploaded and not processed, by namespace
//	undersong_oldest_undelivered_seconds   how long the oldest such Session has waited, by namespace
//	undersong_lost_lines                   lines that could not be sent again, by namespace
//	undersong_parked_deliveries            deliveries that are given up for now, by namespace
//	undersong_sessions                     Sessions, by namespace and state
//	undersong_budget_spent_percent         of the newest day with a turn, by namespace and memory
//
// A namespace with a TeamMemory and no Session has zeros.
package lag

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

var (
	lines    = prometheus.NewDesc("undersong_undelivered_lines", "Lines that are uploaded and not processed.", []string{"namespace"}, nil)
	oldest   = prometheus.NewDesc("undersong_oldest_undelivered_seconds", "Seconds that the Session that has waited longest has waited; 0 when nothing waits.", []string{"namespace"}, nil)
	lost     = prometheus.NewDesc("undersong_lost_lines", "Lines that were in segments that could not be sent again.", []string{"namespace"}, nil)
	parked   = prometheus.NewDesc("undersong_parked_deliveries", "Deliveries that are given up for now.", []string{"namespace"}, nil)
	spent    = prometheus.NewDesc("undersong_budget_spent_percent", "Percent of the budget spent on the newest day with a turn.", []string{"namespace", "memory"}, nil)
	sessions = prometheus.NewDesc("undersong_sessions", "Sessions.", []string{"namespace", "state"}, nil)
)

// listTimeout bounds one scrape. The cache answers in far less.
const listTimeout = 5 * time.Second

// Collector computes the metrics at each scrape, from the cache.
type Collector struct {
	// Reader is the cache.
	Reader client.Reader
	// Clock tells how long something has waited.
	Clock clock.PassiveClock
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- lines
	ch <- oldest
	ch <- lost
	ch <- parked
	ch <- sessions
	ch <- spent
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var list v1alpha1.SessionList
	if err := c.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(lines, err)
		return
	}
	var memories v1alpha1.TeamMemoryList
	if err := c.Reader.List(ctx, &memories, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(spent, err)
		return
	}
	for i := range memories.Items {
		m := &memories.Items[i]
		percent := 0.0
		if u := m.Status.Usage; u != nil {
			percent = float64(u.Percent)
		}
		ch <- prometheus.MustNewConstMetric(spent, prometheus.GaugeValue, percent, m.Namespace, m.Name)
	}
	for namespace, n := range c.sum(&list, &memories) {
		ch <- prometheus.MustNewConstMetric(lines, prometheus.GaugeValue, float64(n.lines), namespace)
		ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, n.oldest.Seconds(), namespace)
		ch <- prometheus.MustNewConstMetric(lost, prometheus.GaugeValue, float64(n.lost), namespace)
		ch <- prometheus.MustNewConstMetric(parked, prometheus.GaugeValue, float64(n.parked), namespace)
		for state, count := range n.states {
			ch <- prometheus.MustNewConstMetric(sessions, prometheus.GaugeValue, float64(count), namespace, string(state))
		}
	}
}

// numbers of one namespace.
type numbers struct {
	lines  int64
	lost   int64
	parked int
	oldest time.Duration
	states map[v1alpha1.SessionState]int
}

func (c *Collector) sum(list *v1alpha1.SessionList, memories *v1alpha1.TeamMemoryList) map[string]*numbers {
	sums := map[string]*numbers{}
	of := func(namespace string) *numbers {
		n, ok := sums[namespace]
		if !ok {
			n = &numbers{states: map[v1alpha1.SessionState]int{v1alpha1.SessionActive: 0, v1alpha1.SessionIdle: 0, v1alpha1.SessionEnded: 0}}
			sums[namespace] = n
		}
		return n
	}
	for i := range memories.Items {
		of(memories.Items[i].Namespace)
	}
	for i := range list.Items {
		s := &list.Items[i]
		n := of(s.Namespace)
		if s.Status.State != "" {
			n.states[s.Status.State]++
		}
		n.lost += s.Status.LostLines
		if s.Status.SyncState != nil {
			n.parked += len(s.Status.SyncState.Parked)
		}
		behind := s.Spec.Lines - s.Status.Lines - s.Status.LostLines
		if behind <= 0 {
			continue
		}
		n.lines += behind
		n.oldest = max(n.oldest, c.Clock.Since(since(s)))
	}
	return sums
}

// since is since when a Session that is behind has waited: since it was last
// heard of, or, if more came while it was behind, since a phase is not done.
func since(s *v1alpha1.Session) time.Time {
	at := s.CreationTimestamp.Time
	if t := s.Status.LastActivityTime; t != nil {
		at = t.Time
	}
	for _, c := range s.Status.Conditions {
		waits := c.Status != metav1.ConditionTrue && (c.Type == v1alpha1.VerifiedCondition || c.Type == v1alpha1.DeliveredCondition)
		if waits && c.LastTransitionTime.Time.Before(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}
