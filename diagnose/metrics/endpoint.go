package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// endpointMetrics shows the traffic of Services' endpoints, as the plane counts it,
// bounded as serviceMetrics does: a limited number has series of their own, the
// busiest first, and all others are one.
type endpointMetrics struct {
	limit                       int
	table                       func() *model.Table // the one in force
	plane                       func() PlaneReader
	log                         *slog.Logger
	connections, packets, bytes *prometheus.Desc

	mu    sync.Mutex
	last  map[counted]kernel.BackendCount // what the plane said before
	from  PlaneReader                     // which plane that was
	shown map[endpoint]*carried
	rest  carried
}

// counted is what a plane counts: the same endpoint may be in several pools.
type counted struct {
	pool model.PoolID
	at   netip.AddrPort
}

// endpoint is what is shown.
type endpoint struct {
	service types.NamespacedName
	proto   model.Protocol
	at      netip.AddrPort
}

// carried is what an endpoint had.
type carried struct{ connections, packets, bytes uint64 }

func (c *carried) add(o carried) {
	c.connections += o.connections
	c.packets += o.packets
	c.bytes += o.bytes
}

func newEndpointMetrics(limit int, table func() *model.Table, plane func() PlaneReader, log *slog.Logger) *endpointMetrics {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("fairway_endpoint_"+name, help, []string{"namespace", "service", "protocol", "endpoint"}, nil)
	}
	return &endpointMetrics{
		limit: limit, table: table, plane: plane, log: log,
		connections: describe("connections_total", "New connections, and UDP flows, that were led to the endpoint."),
		packets:     describe("packets_total", "Packets to and from the endpoint, as far as the data plane sees them."),
		bytes:       describe("bytes_total", "Bytes to and from the endpoint, as far as the data plane sees them."),
		last:        map[counted]kernel.BackendCount{}, shown: map[endpoint]*carried{},
	}
}

// Describe is part of prometheus.Collector.
func (m *endpointMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.connections, m.packets, m.bytes} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *endpointMetrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	table, plane := m.table(), m.plane()
	if table == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), ReadTimeout)
	defer cancel()
	counted, err := plane.Read(ctx, kernel.Query{Backends: table})
	if err != nil {
		m.log.Warn("the data plane's counters of endpoints can't be read; metrics are missing", "error", err)
		return
	}
	if counted.Backends == nil {
		return // this mode doesn't count them
	}
	m.take(table, plane, counted.Backends)
	for e, c := range m.shown {
		m.show(out, *c, e.service.Namespace, e.service.Name, e.proto.String(), e.at.String())
	}
	m.show(out, m.rest, "", "", "", "")
}

func (m *endpointMetrics) show(out chan<- prometheus.Metric, c carried, labels ...string) {
	for d, n := range map[*prometheus.Desc]uint64{m.connections: c.connections, m.packets: c.packets, m.bytes: c.bytes} {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
}

// take adds up what was counted since the last time.
func (m *endpointMetrics) take(table *model.Table, from PlaneReader, counts []kernel.BackendCount) {
	if from != m.from {
		clear(m.last)
		m.from = from
	}
	fresh, seen := map[endpoint]carried{}, make(map[counted]kernel.BackendCount, len(counts))
	for _, c := range counts {
		at := counted{c.Pool, c.Backend}
		before := m.last[at]
		seen[at] = c
		e := endpoint{compile.ServiceOf(c.Pool.Name), c.Pool.Proto, c.Backend}
		sum := fresh[e]
		sum.add(carried{since(before.Connections, c.Connections), since(before.Packets, c.Packets), since(before.Bytes, c.Bytes)})
		fresh[e] = sum
	}
	m.last = seen
	m.forget(table)
	m.share(fresh)
}

// share adds traffic to the endpoints it is of, and lets the busiest of those that
// have no series of their own have what is left.
func (m *endpointMetrics) share(fresh map[endpoint]carried) {
	order := slices.SortedFunc(maps.Keys(fresh), func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(fresh[b].connections, fresh[a].connections), cmp.Compare(fresh[b].bytes, fresh[a].bytes),
			cmp.Compare(a.service.String(), b.service.String()), cmp.Compare(a.proto, b.proto), a.at.Compare(b.at))
	})
	for _, e := range order {
		c := fresh[e]
		switch own := m.shown[e]; {
		case own != nil:
			own.add(c)
		case c != carried{} && len(m.shown) < m.limit:
			m.shown[e] = &c
		default:
			m.rest.add(c)
		}
	}
}

// forget gives up the series of endpoints that are gone.
func (m *endpointMetrics) forget(table *model.Table) {
	if len(m.shown) == 0 {
		return
	}
	gone := maps.Clone(m.shown)
	for p := range table.Pools() {
		for _, list := range [][]model.Backend{p.Backends, p.Draining} {
			for _, b := range list {
				delete(gone, endpoint{compile.ServiceOf(p.ID.Name), p.ID.Proto, b.AddrPort()})
			}
		}
	}
	for e := range gone {
		delete(m.shown, e)
	}
}
