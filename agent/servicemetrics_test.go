package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

func keyOf(n int) model.Key {
	return model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}), Port: 80, Proto: model.TCP}
}

// servicesTable has these Services, each with as many endpoints as its number.
func servicesTable(numbers ...int) *model.Table {
	e := model.NewTable().Edit()
	for _, n := range numbers {
		id := model.PoolID{Name: fmt.Sprintf("default/s%d:http", n), Proto: model.TCP}
		pool := &model.Pool{ID: id}
		for i := range n {
			pool.Backends = append(pool.Backends, model.Backend{Addr: netip.AddrFrom4([4]byte{10, 244, byte(n), byte(i)}), Port: 80, Weight: 1})
		}
		e.SetPool(pool)
		e.SetFrontend(&model.Frontend{Key: keyOf(n), Name: id.Name, Routes: [model.NumOrigins]model.Route{{Pool: id}, {Pool: id}, {Pool: id}}})
	}
	return e.Table()
}

// gathered is what /metrics would show of a collector: the lines that line makes
// of it, but for empty ones.
func gathered(t *testing.T, c prometheus.Collector, line func(name string, labels map[string]string, value float64) string) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if l := line(f.GetName(), labels, metric.GetCounter().GetValue()+metric.GetGauge().GetValue()); l != "" {
				lines = append(lines, l)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// shown are the lines of Services that aren't zero, without the names' common
// beginning.
func shown(t *testing.T, m *serviceMetrics) string {
	t.Helper()
	return gathered(t, m, func(name string, labels map[string]string, value float64) string {
		if value <= 0 {
			return ""
		}
		name = strings.TrimSuffix(strings.TrimPrefix(name, "fairway_service_"), "_total")
		return fmt.Sprintf("%s%s %s=%v", name, labels["direction"], labels["service"], value)
	})
}

func TestServiceMetricsAreBounded(t *testing.T) {
	table, plane := servicesTable(1, 2, 3), &fakeReader{}
	m := newServiceMetrics(2, func() *model.Table { return table }, func() planeReader { return plane }, slog.New(slog.DiscardHandler))
	for _, step := range []struct {
		what, want string
		do         func()
	}{
		{"nothing yet", "", func() {}},
		{"the busiest have series, the others are one", "connections =1, connections s2=7, connections s3=5, endpoints s2=2, endpoints s3=3", func() {
			plane.Frontends = []kernel.Count{{Frontend: keyOf(1), Connections: 1}, {Frontend: keyOf(2), Connections: 7}, {Frontend: keyOf(3), Connections: 5}}
		}},
		{"who has a series keeps it", "connections =101, connections s2=7, connections s3=5, endpoints s2=2, endpoints s3=3", func() {
			plane.Frontends[0].Connections = 101
		}},
		{"counters that begin again add up", "connections =101, connections s2=9, connections s3=5, endpoints s2=2, endpoints s3=3", func() {
			plane.Frontends[1].Connections = 2
		}},
		{"another plane begins at 0", "connections =101, connections s2=10, connections s3=5, endpoints s2=2, endpoints s3=3", func() {
			plane = &fakeReader{kernel.Reading{Frontends: []kernel.Count{{Frontend: keyOf(2), Connections: 1}}}}
		}},
		{"a Service that is gone leaves its place", "bytesin s1=30, bytesout s1=40, connections =101, connections s2=10, endpoints s1=1, endpoints s2=2, refused_packets s1=3", func() {
			table = servicesTable(1, 2)
			plane.Frontends = append(plane.Frontends, kernel.Count{Frontend: keyOf(1), Refused: 3, In: 30, Out: 40}, kernel.Count{Frontend: keyOf(9), Connections: 9})
		}},
		{"a plane that doesn't count", "bytesin s1=30, bytesout s1=40, connections =101, connections s2=10, endpoints s1=1, endpoints s2=2, refused_packets s1=3", func() {
			plane = &fakeReader{}
		}},
	} {
		step.do()
		if got := shown(t, m); got != step.want {
			t.Errorf("%s:\ngot  %s\nwant %s", step.what, got, step.want)
		}
	}
}
