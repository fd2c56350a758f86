package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/model"
)

// metrics are named and mean what kube-proxy's do (pkg/proxy/metrics of 1.37),
// so that dashboards and alerts made for it go on working. kube-proxy has a
// proxy for each IP family and tells which one a metric is of; here one round
// is of all families that the node has, and counts for each.
type metrics struct {
	registry *prometheus.Registry
	changes  *changes
	slis     *slis // are gathered apart

	sync, full, partial *prometheus.HistogramVec
	programming         *prometheus.HistogramVec
	last, queued        *prometheus.GaugeVec
	restoreFailures     *prometheus.CounterVec
	partialFailures     *prometheus.CounterVec
	nftablesFailures    *prometheus.CounterVec
	cleanupFailures     *prometheus.CounterVec
	sweeps              *prometheus.HistogramVec
	forgotten           *prometheus.CounterVec
	healthz, livez      *prometheus.CounterVec

	failures         prometheus.Counter
	reloads          *prometheus.CounterVec
	frontends, pools prometheus.Gauge

	trusting bool // the plane goes by memory: the last round succeeded
}

const proxySystem = "kubeproxy"

// familyLabel is kube-proxy's, with IPv4 and IPv6.
const familyLabel = "ip_family"

func newMetrics() *metrics {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		registry: prometheus.NewRegistry(),
		changes:  newChanges(),
		slis:     newSLIs(),

		sync:    histogram("sync_proxy_rules_duration_seconds", "How long a round of programming took.", seconds),
		full:    histogram("sync_full_proxy_rules_duration_seconds", "How long a round took that compared with the kernel.", seconds),
		partial: histogram("sync_partial_proxy_rules_duration_seconds", "How long a round of changes alone took.", seconds),
		programming: histogram("network_programming_duration_seconds",
			"From the change of a pod or Service to its being in force here.", programmingBuckets()),
		last:             gauge("sync_proxy_rules_last_timestamp_seconds", "When the last round of programming succeeded."),
		queued:           gauge("sync_proxy_rules_last_queued_timestamp_seconds", "When the last change came that a round was needed for."),
		restoreFailures:  counter("sync_proxy_rules_iptables_restore_failures_total", "Rounds of iptables or ipvs mode that failed."),
		partialFailures:  counter("sync_proxy_rules_iptables_partial_restore_failures_total", "Rounds of changes alone of iptables mode that failed."),
		nftablesFailures: counter("sync_proxy_rules_nftables_sync_failures_total", "Rounds of nftables mode that failed."),
		cleanupFailures:  counter("sync_proxy_rules_nftables_cleanup_failures_total", "Rounds of nftables mode that failed while comparing with the kernel, which is when remains go."),
		sweeps:           histogram("conntrack_reconciler_sync_duration_seconds", "How long it took to bring connections into line after a round.", seconds),
		forgotten:        counter("conntrack_reconciler_deleted_entries_total", "Connection tracking entries deleted because they led nowhere."),
		healthz:          counterOf("proxy_healthz_total", "Answers at /healthz.", "code"),
		livez:            counterOf("proxy_livez_total", "Answers at /livez.", "code"),

		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "fairway", Name: "programming_failures_total",
			Help: "Rounds of programming that failed and were tried again.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "fairway", Name: "config_reloads_total",
			Help: "Changes of the configuration file, by whether they are in force.",
		}, []string{"result"}),
		frontends: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "fairway", Name: "frontends", Help: "Addresses and ports that this node forwards.",
		}),
		pools: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "fairway", Name: "pools", Help: "Sets of endpoints that this node forwards to.",
		}),
	}
	m.registry.MustRegister(m.sync, m.full, m.partial, m.programming, m.last, m.queued, m.restoreFailures, m.partialFailures,
		m.nftablesFailures, m.cleanupFailures, m.sweeps, m.forgotten, m.healthz, m.livez,
		m.failures, m.reloads, m.frontends, m.pools, m.changes)
	return m
}

func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: proxySystem, Name: name, Help: help, Buckets: buckets}, []string{familyLabel})
}

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: proxySystem, Name: name, Help: help}, []string{familyLabel})
}

func counter(name, help string) *prometheus.CounterVec { return counterOf(name, help, familyLabel) }

func counterOf(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: proxySystem, Name: name, Help: help}, labels)
}

// programmingBuckets has all of kube-proxy's bounds, which recording rules name,
// and finer ones below: there are milliseconds to tell apart here.
func programmingBuckets() []float64 {
	b := []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5}
	b = append(b, prometheus.LinearBuckets(1, 1, 59)...)
	b = append(b, prometheus.LinearBuckets(60, 5, 12)...)
	return append(b, prometheus.LinearBuckets(120, 30, 7)...)
}

// familiesOf are the families in which the node has addresses of its own.
func familiesOf(t *model.Table) []string {
	var has4, has6 bool
	if t != nil {
		for _, a := range t.Settings.NodeAddrs {
			if !a.IsLoopback() {
				has4, has6 = has4 || a.Is4(), has6 || a.Is6()
			}
		}
	}
	switch {
	case has4 && has6:
		return []string{"IPv4", "IPv6"}
	case has6:
		return []string{"IPv6"}
	}
	return []string{"IPv4"}
}

// changed notes that a round is needed.
func (m *metrics) changed() {
	for _, family := range m.changes.families() {
		m.queued.WithLabelValues(family).SetToCurrentTime()
	}
}

// rounded takes in how a round ended that the plane of a mode was in force for.
func (m *metrics) rounded(r round, mode string) {
	families := familiesOf(r.Table)
	delays := m.changes.rounded(r.Err == nil, families)
	full := r.Verified && !r.Checked || !m.trusting
	m.trusting = r.Err == nil
	for _, family := range families {
		m.begin(family)
		m.sync.WithLabelValues(family).Observe(r.Took.Seconds())
		if r.Err != nil {
			m.failed(mode, family, full)
			continue
		}
		if full {
			m.full.WithLabelValues(family).Observe(r.Took.Seconds())
		} else {
			m.partial.WithLabelValues(family).Observe(r.Took.Seconds())
		}
		m.last.WithLabelValues(family).SetToCurrentTime()
		for _, d := range delays {
			m.programming.WithLabelValues(family).Observe(d.Seconds())
		}
	}
	if r.Err != nil {
		m.failures.Inc()
		return
	}
	m.frontends.Set(float64(r.Table.NumFrontends()))
	m.pools.Set(float64(r.Table.NumPools()))
}

// begin has a family's counters there from the first round on.
func (m *metrics) begin(family string) {
	for _, c := range []*prometheus.CounterVec{m.restoreFailures, m.partialFailures, m.nftablesFailures, m.cleanupFailures, m.forgotten} {
		c.WithLabelValues(family)
	}
	m.sweeps.WithLabelValues(family)
	m.full.WithLabelValues(family)
	m.partial.WithLabelValues(family)
	m.programming.WithLabelValues(family)
}

// unchanged takes in that what the API changed changes nothing in the table in
// force.
func (m *metrics) unchanged(t *model.Table) {
	families := familiesOf(t)
	for _, d := range m.changes.rounded(true, families) {
		for _, family := range families {
			m.programming.WithLabelValues(family).Observe(d.Seconds())
		}
	}
}

func (m *metrics) failed(mode, family string, full bool) {
	switch {
	case mode == "nftables" && full:
		m.cleanupFailures.WithLabelValues(family).Inc()
		m.nftablesFailures.WithLabelValues(family).Inc()
	case mode == "nftables":
		m.nftablesFailures.WithLabelValues(family).Inc()
	case mode == "iptables" && !full:
		m.partialFailures.WithLabelValues(family).Inc()
	case mode == "iptables", mode == "ipvs":
		m.restoreFailures.WithLabelValues(family).Inc()
	}
}

// swept takes in that connections were brought into line with a new table.
func (m *metrics) swept(forgotten int, took time.Duration) {
	for _, family := range m.changes.families() {
		m.sweeps.WithLabelValues(family).Observe(took.Seconds())
	}
	// One sweep is of both families; who was forgotten of which isn't told.
	m.forgotten.WithLabelValues(m.changes.families()[0]).Add(float64(forgotten))
}
