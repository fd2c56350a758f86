package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/model"
)

// tableMetrics shows what can be said of the table in force alone. It is worked
// out when somebody asks, and again only if the table is another one by then.
type tableMetrics struct {
	table                func() *model.Table // the one in force
	services, noEndpoint *prometheus.Desc

	mu         sync.Mutex
	counted    *model.Table
	all, empty int
}

func newTableMetrics(table func() *model.Table) *tableMetrics {
	return &tableMetrics{
		table:      table,
		services:   prometheus.NewDesc("fairway_services", "Services that this node forwards.", nil, nil),
		noEndpoint: prometheus.NewDesc("fairway_services_without_endpoints", "Services with a port that no endpoint takes new connections of, from anywhere.", nil, nil),
	}
}

// Describe is part of prometheus.Collector.
func (m *tableMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.services
	out <- m.noEndpoint
}

// Collect is part of prometheus.Collector.
func (m *tableMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	table := m.table()
	if table == nil {
		return
	}
	if table != m.counted {
		m.counted, m.all, m.empty = table, ServicesIn(table), withoutEndpoints(table)
	}
	out <- prometheus.MustNewConstMetric(m.services, prometheus.GaugeValue, float64(m.all))
	out <- prometheus.MustNewConstMetric(m.noEndpoint, prometheus.GaugeValue, float64(m.empty))
}

// withoutEndpoints counts Services of which a frontend leads to empty pools, from
// whatever origin.
func withoutEndpoints(t *model.Table) int {
	found := map[types.NamespacedName]bool{}
	for f := range t.Frontends() {
		empty := true
		for _, r := range f.Routes {
			if p := t.Pool(r.Pool); p != nil && len(p.Backends) > 0 {
				empty = false
			}
		}
		if empty {
			found[compile.ServiceOf(f.Name)] = true
		}
	}
	return len(found)
}

// ServicesIn counts the Services that a table has frontends of.
func ServicesIn(t *model.Table) int {
	services := map[types.NamespacedName]bool{}
	for f := range t.Frontends() {
		services[compile.ServiceOf(f.Name)] = true
	}
	return len(services)
}
