// Package lag tells Prometheus how far memory is behind. Alerts should speak
// of this, not of whether a process lives.
//
//	undersong_undelivered_lines            lines that are uploaded and not processed, by namespace
//	undersong_oldest_undelivered_seconds   how long the oldest such Session has waited, by namespace
//	undersong_sessions                     Sessions, by namespace and state
package lag

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

var (
	lines    = prometheus.NewDesc("undersong_undelivered_lines", "Lines that are uploaded and not processed.", []string{"namespace"}, nil)
	oldest   = prometheus.NewDesc("undersong_oldest_undelivered_seconds", "Seconds since the Session that has waited longest was last heard of; 0 when nothing waits.", []string{"namespace"}, nil)
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
	ch <- sessions
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var list v1alpha1.SessionList
	if err := c.Reader.List(ctx, &list); err != nil {
		ch <- prometheus.NewInvalidMetric(lines, err)
		return
	}
	for namespace, n := range c.sum(&list) {
		ch <- prometheus.MustNewConstMetric(lines, prometheus.GaugeValue, float64(n.lines), namespace)
		ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, n.oldest.Seconds(), namespace)
		for state, count := range n.states {
			ch <- prometheus.MustNewConstMetric(sessions, prometheus.GaugeValue, float64(count), namespace, string(state))
		}
	}
}

// numbers of one namespace.
type numbers struct {
	lines  int64
	oldest time.Duration
	states map[v1alpha1.SessionState]int
}

func (c *Collector) sum(list *v1alpha1.SessionList) map[string]*numbers {
	sums := map[string]*numbers{}
	for i := range list.Items {
		s := &list.Items[i]
		n, ok := sums[s.Namespace]
		if !ok {
			n = &numbers{states: map[v1alpha1.SessionState]int{v1alpha1.SessionActive: 0, v1alpha1.SessionIdle: 0, v1alpha1.SessionEnded: 0}}
			sums[s.Namespace] = n
		}
		if s.Status.State != "" {
			n.states[s.Status.State]++
		}
		behind := s.Spec.Lines - s.Status.Lines - s.Status.LostLines
		if behind <= 0 {
			continue
		}
		n.lines += behind
		since := s.CreationTimestamp.Time
		if t := s.Status.LastActivityTime; t != nil {
			since = t.Time
		}
		n.oldest = max(n.oldest, c.Clock.Since(since))
	}
	return sums
}
