package metrics

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/servicetables"
)

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
	table, plane := servicetables.Services(1, 2, 3), &fakeReader{}
	m := newServiceMetrics(2, func() *model.Table { return table }, func() PlaneReader { return plane }, slog.New(slog.DiscardHandler))
	for _, step := range []struct {
		what, want string
		do         func()
	}{
		{"nothing yet", "", func() {}},
		{"the busiest have series, the others are one", "connections =1, connections s2=7, connections s3=5, endpoints s2=2, endpoints s3=3", func() {
			plane.Frontends = []kernel.Count{{Frontend: servicetables.Key(1), Connections: 1}, {Frontend: servicetables.Key(2), Connections: 7}, {Frontend: servicetables.Key(3), Connections: 5}}
		}},
		{"who has a series keeps it", "connections =101, connections s2=7, connections s3=5, endpoints s2=2, endpoints s3=3", func() {
			plane.Frontends[0].Connections = 101
		}},
		{"counters that begin again add up", "connections =101, connections s2=9, connections s3=5, endpoints s2=2, endpoints s3=3", func() {
			plane.Frontends[1].Connections = 2
		}},
		{"another plane begins at 0", "connections =101, connections s2=10, connections s3=5, endpoints s2=2, endpoints s3=3", func() {
			plane = &fakeReader{kernel.Reading{Frontends: []kernel.Count{{Frontend: servicetables.Key(2), Connections: 1}}}}
		}},
		{"a Service that is gone leaves its place", "bytesin s1=30, bytesout s1=40, connections =101, connections s2=10, endpoints s1=1, endpoints s2=2, refused_packets s1=3", func() {
			table = servicetables.Services(1, 2)
			plane.Frontends = append(plane.Frontends, kernel.Count{Frontend: servicetables.Key(1), Refused: 3, In: 30, Out: 40}, kernel.Count{Frontend: servicetables.Key(9), Connections: 9})
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
