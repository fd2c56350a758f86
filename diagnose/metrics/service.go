package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// DefaultServiceMetrics is of how many Services an agent shows metrics unless
// it is told otherwise.
const DefaultServiceMetrics = 100

// serviceMetrics shows the traffic of Services, as the plane counts it. So that
// there are never more than so many time series, a limited number of Services
// have their own: those with traffic, the busiest first, and each until it is
// gone. All others are one, without a name.
type serviceMetrics struct {
	limit                                  int
	table                                  func() *model.Table // the one in force
	plane                                  func() PlaneReader
	log                                    *slog.Logger
	connections, refused, bytes, endpoints *prometheus.Desc

	mu    sync.Mutex
	last  map[model.Key]kernel.Count // what the plane said before
	from  PlaneReader                // which plane that was
	shown map[types.NamespacedName]*traffic
	rest  traffic
}

// traffic is what a Service had. What the kernel counted for an agent before this
// one is part of it, so that a restart shows nothing.
type traffic struct{ connections, noBackend, notAllowed, otherwise, in, out uint64 }

func (t *traffic) add(o traffic) {
	t.connections += o.connections
	t.noBackend += o.noBackend
	t.notAllowed += o.notAllowed
	t.otherwise += o.otherwise
	t.in += o.in
	t.out += o.out
}

func (t traffic) any() bool { return t != traffic{} }

func newServiceMetrics(limit int, table func() *model.Table, plane func() PlaneReader, log *slog.Logger) *serviceMetrics {
	describe := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("fairway_service_"+name, help, append([]string{"namespace", "service"}, more...), nil)
	}
	return &serviceMetrics{
		limit: limit, table: table, plane: plane, log: log,
		connections: describe("connections_total", "New connections, and UDP flows, that got an endpoint."),
		refused:     describe("refused_packets_total", "Packets that got no endpoint: there was none, or the source isn't let in.", "reason"),
		bytes:       describe("bytes_total", "Bytes from (in) and to (out) clients.", "direction"),
		endpoints:   describe("endpoints", "Endpoints that take new connections from this node."),
		last:        map[model.Key]kernel.Count{}, shown: map[types.NamespacedName]*traffic{},
	}
}

// Describe is part of prometheus.Collector.
func (m *serviceMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.connections, m.refused, m.bytes, m.endpoints} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *serviceMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	table, plane := m.table(), m.plane()
	if table == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), ReadTimeout)
	defer cancel()
	counted, err := plane.Read(ctx, kernel.Query{Frontends: true})
	if err != nil {
		m.log.Warn("the data plane's counters of Services can't be read; metrics keep their last values", "error", err)
	} else {
		m.take(table, plane, counted.Frontends)
	}
	endpoints := m.activeEndpoints(table)
	for name, t := range m.shown {
		m.show(out, name, *t)
		out <- prometheus.MustNewConstMetric(m.endpoints, prometheus.GaugeValue, float64(endpoints[name]), name.Namespace, name.Name)
	}
	m.show(out, types.NamespacedName{}, m.rest)
}

func (m *serviceMetrics) show(out chan<- prometheus.Metric, name types.NamespacedName, t traffic) {
	send := func(d *prometheus.Desc, value uint64, more ...string) {
		labels := append([]string{name.Namespace, name.Name}, more...)
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	send(m.connections, t.connections)
	send(m.refused, t.noBackend, "no_endpoint")
	send(m.refused, t.notAllowed, "source")
	send(m.refused, t.otherwise, "unknown") // where the plane doesn't tell them apart
	if t.in > 0 || t.out > 0 {              // as far as they are counted
		send(m.bytes, t.in, "in")
		send(m.bytes, t.out, "out")
	}
}

// take adds up what was counted since the last time.
func (m *serviceMetrics) take(table *model.Table, from PlaneReader, counts []kernel.Count) {
	if from != m.from {
		clear(m.last)
		m.from = from
	}
	fresh := map[types.NamespacedName]*traffic{}
	seen := make(map[model.Key]kernel.Count, len(counts))
	for _, c := range counts {
		seen[c.Frontend] = c
		f := table.Lookup(c.Frontend)
		if f == nil {
			continue
		}
		before := m.last[c.Frontend]
		service := compile.ServiceOf(f.Name)
		if fresh[service] == nil {
			fresh[service] = &traffic{}
		}
		fresh[service].add(traffic{
			connections: since(before.Connections, c.Connections),
			noBackend:   since(before.NoBackend, c.NoBackend), notAllowed: since(before.NotAllowed, c.NotAllowed),
			otherwise: since(otherwise(before), otherwise(c)),
			in:        since(before.In, c.In), out: since(before.Out, c.Out),
		})
	}
	m.last = seen
	m.forget(table)
	m.share(fresh)
}

// otherwise are refused packets of which the plane doesn't tell the reason.
func otherwise(c kernel.Count) uint64 { return c.Refused - c.NoBackend - c.NotAllowed }

// since is how much was counted; a counter that went back began at 0 again.
func since(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// share adds traffic to the Services it is of, and lets the busiest of those that
// have no series of their own have what is left.
func (m *serviceMetrics) share(fresh map[types.NamespacedName]*traffic) {
	names := slices.SortedFunc(maps.Keys(fresh), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(fresh[b].connections, fresh[a].connections), cmp.Compare(fresh[b].in, fresh[a].in),
			cmp.Compare(a.String(), b.String()))
	})
	for _, name := range names {
		t := fresh[name]
		switch own := m.shown[name]; {
		case own != nil:
			own.add(*t)
		case t.any() && len(m.shown) < m.limit:
			m.shown[name] = t
		default:
			m.rest.add(*t)
		}
	}
}

// forget gives up the series of Services that are gone.
func (m *serviceMetrics) forget(table *model.Table) {
	if len(m.shown) == 0 {
		return
	}
	there := map[types.NamespacedName]bool{}
	for f := range table.Frontends() {
		there[compile.ServiceOf(f.Name)] = true
	}
	maps.DeleteFunc(m.shown, func(name types.NamespacedName, _ *traffic) bool { return !there[name] })
}

// activeEndpoints counts the addresses that the Services shown have backends at.
func (m *serviceMetrics) activeEndpoints(table *model.Table) map[types.NamespacedName]int {
	counts := map[types.NamespacedName]int{}
	seen := map[types.NamespacedName]map[model.Backend]bool{}
	for p := range table.Pools() {
		name := compile.ServiceOf(p.ID.Name)
		if m.shown[name] == nil {
			continue
		}
		if seen[name] == nil {
			seen[name] = map[model.Backend]bool{}
		}
		for _, b := range p.Backends {
			if address := (model.Backend{Addr: b.Addr}); !seen[name][address] {
				seen[name][address] = true
				counts[name]++
			}
		}
	}
	return counts
}
