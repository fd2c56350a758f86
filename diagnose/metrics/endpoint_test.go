package metrics

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/servicetables"
)

// connections is what /metrics would show of endpoints' connections.
func connections(t *testing.T, m *endpointMetrics) string {
	t.Helper()
	return gathered(t, m, func(name string, labels map[string]string, value float64) string {
		if name != "fairway_endpoint_connections_total" {
			return ""
		}
		return fmt.Sprintf("%s %s %s %s=%v", labels["endpoint"], labels["namespace"], labels["protocol"], labels["service"], value)
	})
}

func TestEndpointMetricsAreBounded(t *testing.T) {
	table, plane := servicetables.Services(1, 2), &fakeReader{}
	m := newEndpointMetrics(1, func() *model.Table { return table }, func() PlaneReader { return plane }, slog.New(slog.DiscardHandler))
	count := func(service, i int, n uint64) kernel.BackendCount {
		p := table.Pool(model.PoolID{Name: fmt.Sprintf("default/s%d:http", service), Proto: model.TCP})
		return kernel.BackendCount{Pool: p.ID, Backend: p.Backends[i].AddrPort(), Connections: n}
	}
	plane.Backends = []kernel.BackendCount{count(1, 0, 3), count(2, 0, 7), count(2, 1, 4)}
	for _, step := range []struct {
		what, want string
		do         func()
	}{
		{"the busiest has a series", "   =7, 10.244.2.0:80 default tcp s2=7", func() {}},
		{"who has a series keeps it", "   =107, 10.244.2.0:80 default tcp s2=7", func() { plane.Backends[0].Connections += 100 }},
		{"counters that begin again add up", "   =107, 10.244.2.0:80 default tcp s2=9", func() { plane.Backends[1].Connections = 2 }},
		{"who is gone gives it up", "   =107, 10.244.1.0:80 default tcp s1=1", func() {
			plane.Backends = []kernel.BackendCount{count(1, 0, 104)}
			table = servicetables.Services(1)
		}},
	} {
		step.do()
		if got := connections(t, m); got != step.want {
			t.Errorf("%s: %s, expected %s", step.what, got, step.want)
		}
	}
}
