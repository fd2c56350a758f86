package agent

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// metrics are named and mean what kube-proxy's do (pkg/proxy/metrics), so that
// dashboards and alerts made for it go on working.
type metrics struct {
	registry    *prometheus.Registry
	sync        prometheus.Histogram
	last        prometheus.Gauge
	queued      prometheus.Gauge
	failures    prometheus.Counter
	programming prometheus.Histogram
	frontends   prometheus.Gauge
	pools       prometheus.Gauge

	mu      sync.Mutex
	waiting []time.Time // when changes were made at the API that are not in force
}

// maxWaiting bounds how many changes are timed at once: a sample is enough.
const maxWaiting = 4096

func newMetrics() *metrics {
	const proxy = "kubeproxy"
	m := &metrics{
		registry: prometheus.NewRegistry(),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: proxy, Name: "sync_proxy_rules_duration_seconds",
			Help:    "How long a round of programming took, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: proxy, Name: "sync_proxy_rules_last_timestamp_seconds",
			Help: "When the last round of programming succeeded.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: proxy, Name: "sync_proxy_rules_last_queued_timestamp_seconds",
			Help: "When the last change came that a round was needed for.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "fairway", Name: "programming_failures_total",
			Help: "Rounds of programming that failed and were tried again.",
		}),
		programming: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: proxy, Name: "network_programming_duration_seconds",
			Help:    "From the change of a pod or Service to its being in force here, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
		}),
		frontends: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "fairway", Name: "frontends", Help: "Addresses and ports that this node forwards.",
		}),
		pools: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "fairway", Name: "pools", Help: "Sets of endpoints that this node forwards to.",
		}),
	}
	m.registry.MustRegister(m.sync, m.last, m.queued, m.failures, m.programming, m.frontends, m.pools,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) changed() { m.queued.SetToCurrentTime() }

// triggered notes when the change was made that a slice carries (annotation
// endpoints.kubernetes.io/last-change-trigger-time).
func (m *metrics) triggered(s *discoveryv1.EndpointSlice) {
	at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return // written by somebody who doesn't say
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) < maxWaiting {
		m.waiting = append(m.waiting, at)
	}
}

func (m *metrics) rounded(r round) {
	m.sync.Observe(r.Took.Seconds())
	if r.Err != nil {
		m.failures.Inc()
		return
	}
	m.last.SetToCurrentTime()
	m.frontends.Set(float64(r.Table.NumFrontends()))
	m.pools.Set(float64(r.Table.NumPools()))
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.waiting {
		m.programming.Observe(time.Since(at).Seconds())
	}
	m.waiting = m.waiting[:0]
}
