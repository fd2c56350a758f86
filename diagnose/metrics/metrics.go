// Package metrics is what an agent shows at /metrics: of its syncs (metrics.go), of the
// table in force (table.go, localendpoints.go), and what the data plane counts of all
// packets, of Services and of endpoints (plane.go, service.go, endpoint.go).
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/httpports"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube/latency"
	"github.com/fairway-net/fairway/model"
)

// Metrics are named and mean what kube-proxy's do (pkg/proxy/metrics of 1.37),
// so that dashboards and alerts made for it go on working. kube-proxy has a
// proxy for each IP family and tells which one a metric is of; here one sync
// is of all families that the node has, and counts for each.
type Metrics struct {
	Registry *prometheus.Registry
	Changes  *latency.Changes
	SLIs     *httpports.SLIs // are gathered apart

	Healthz, Livez *prometheus.CounterVec // answers, by code
	Reloads        *prometheus.CounterVec // of the configuration, by result
	LeftOut        prometheus.Gauge       // parts of the table, by the last sync
	MachinesGone   prometheus.Gauge       // of the link, as their peers agree

	sync, full, partial *prometheus.HistogramVec
	programming         *prometheus.HistogramVec
	last, queued        *prometheus.GaugeVec
	syncFailures        map[string]*prometheus.CounterVec // by name; see dataplane.FailureMetrics
	sweeps              *prometheus.HistogramVec
	forgotten           *prometheus.CounterVec

	failures         prometheus.Counter
	frontends, pools prometheus.Gauge

	trusting bool // the plane goes by memory: the last sync succeeded
}

// ProxySystem is what the names of kube-proxy's metrics begin with.
const ProxySystem = "kubeproxy"

// familyLabel is kube-proxy's, with IPv4 and IPv6.
const familyLabel = "ip_family"

// New makes metrics, of which none has been counted.
func New() *Metrics {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		Changes:  latency.New(ProxySystem),
		SLIs:     httpports.NewSLIs(),

		sync:    histogram("sync_proxy_rules_duration_seconds", "How long a sync of programming took.", seconds),
		full:    histogram("sync_full_proxy_rules_duration_seconds", "How long a sync took that compared with the kernel.", seconds),
		partial: histogram("sync_partial_proxy_rules_duration_seconds", "How long a sync of changes alone took.", seconds),
		programming: histogram("network_programming_duration_seconds",
			"From the change of a pod or Service to its being in force here.", programmingBuckets()),
		last:   gauge("sync_proxy_rules_last_timestamp_seconds", "When the last sync of programming succeeded."),
		queued: gauge("sync_proxy_rules_last_queued_timestamp_seconds", "When the last change came that a sync was needed for."),
		syncFailures: map[string]*prometheus.CounterVec{
			dataplane.RestoreFailures:        counter(dataplane.RestoreFailures, "Syncs of iptables or ipvs mode that failed."),
			dataplane.PartialRestoreFailures: counter(dataplane.PartialRestoreFailures, "Syncs of changes alone of iptables mode that failed."),
			dataplane.NFTablesFailures:       counter(dataplane.NFTablesFailures, "Syncs of nftables mode that failed."),
			dataplane.NFTablesCleanupFailed:  counter(dataplane.NFTablesCleanupFailed, "Syncs of nftables mode that failed while comparing with the kernel, which is when remains go."),
		},
		sweeps:    histogram("conntrack_reconciler_sync_duration_seconds", "How long it took to bring connections into line after a sync.", seconds),
		forgotten: counter("conntrack_reconciler_deleted_entries_total", "Connection tracking entries deleted because they led nowhere."),
		Healthz:   counterOf("proxy_healthz_total", "Answers at /healthz.", "code"),
		Livez:     counterOf("proxy_livez_total", "Answers at /livez.", "code"),

		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "fairway", Name: "programming_failures_total",
			Help: "Rounds of programming that failed and were tried again.",
		}),
		Reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "fairway", Name: "config_reloads_total",
			Help: "Changes of the configuration file, by whether they are in force.",
		}, []string{"result"}),
		frontends: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "fairway", Name: "frontends", Help: "Addresses and ports that this node forwards.",
		}),
		LeftOut: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "fairway", Name: "left_out", Help: "Frontends, pools and other parts of the table that the last sync left out, while all else is in force.",
		}),
		MachinesGone: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "fairway", Name: "machines_gone", Help: "Machines that their peers on the link agree are gone: their endpoints get no new connections while others are ready.",
		}),
		pools: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "fairway", Name: "pools", Help: "Sets of endpoints that this node forwards to.",
		}),
	}
	for _, result := range []string{"taken", "invalid"} {
		m.Reloads.WithLabelValues(result) // there at 0, to be alerted on
	}
	for _, c := range m.syncFailures {
		m.Registry.MustRegister(c)
	}
	m.Registry.MustRegister(m.sync, m.full, m.partial, m.programming, m.last, m.queued, m.sweeps, m.forgotten, m.Healthz, m.Livez,
		m.failures, m.Reloads, m.frontends, m.pools, m.LeftOut, m.MachinesGone, m.Changes)
	return m
}

func histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ProxySystem, Name: name, Help: help, Buckets: buckets}, []string{familyLabel})
}

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ProxySystem, Name: name, Help: help}, []string{familyLabel})
}

func counter(name, help string) *prometheus.CounterVec { return counterOf(name, help, familyLabel) }

func counterOf(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ProxySystem, Name: name, Help: help}, labels)
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

// Changed notes that a sync is needed.
func (m *Metrics) Changed() {
	for _, family := range m.Changes.Families() {
		m.queued.WithLabelValues(family).SetToCurrentTime()
	}
}

// Sync is how one attempt ended to bring the kernel in step.
type Sync struct {
	Table    *model.Table
	Took     time.Duration
	Verified kernel.Verification
	Err      error
}

// SyncEnded takes in how a sync ended of a mode with these counters of failures.
func (m *Metrics) SyncEnded(r Sync, failures dataplane.FailureMetrics) {
	families := familiesOf(r.Table)
	delays := m.Changes.SyncEnded(r.Err == nil, families)
	full := r.Verified == kernel.VerifyAll || !m.trusting
	m.trusting = r.Err == nil
	for _, family := range families {
		m.begin(family)
		m.sync.WithLabelValues(family).Observe(r.Took.Seconds())
		if r.Err != nil {
			m.failed(failures, family, full)
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

// begin has a family's counters there from the first sync on.
func (m *Metrics) begin(family string) {
	for _, c := range m.syncFailures {
		c.WithLabelValues(family)
	}
	m.forgotten.WithLabelValues(family)
	m.sweeps.WithLabelValues(family)
	m.full.WithLabelValues(family)
	m.partial.WithLabelValues(family)
	m.programming.WithLabelValues(family)
}

// Unchanged takes in that what the API changed changes nothing in the table in
// force.
func (m *Metrics) Unchanged(t *model.Table) {
	families := familiesOf(t)
	for _, d := range m.Changes.SyncEnded(true, families) {
		for _, family := range families {
			m.programming.WithLabelValues(family).Observe(d.Seconds())
		}
	}
}

func (m *Metrics) failed(of dataplane.FailureMetrics, family string, full bool) {
	names := []string{of.All, of.Partial}
	if full {
		names[1] = of.Full
	}
	for _, name := range names {
		if name != "" {
			m.syncFailures[name].WithLabelValues(family).Inc()
		}
	}
}

// Swept takes in that connections were brought into line with a new table.
func (m *Metrics) Swept(forgotten int, took time.Duration) {
	for _, family := range m.Changes.Families() {
		m.sweeps.WithLabelValues(family).Observe(took.Seconds())
	}
	// One sweep is of both families; who was forgotten of which isn't told.
	m.forgotten.WithLabelValues(m.Changes.Families()[0]).Add(float64(forgotten))
}
