package agent

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/dataplane"
)

// fillMetrics shows how full the maps are that a plane's programs fill.
type fillMetrics struct {
	filler               func() dataplane.Filler // nil if the plane has none
	log                  *slog.Logger
	entries, size, limit *prometheus.Desc
}

func newFillMetrics(filler func() dataplane.Filler, log *slog.Logger) *fillMetrics {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("fairway_map_"+name, help, []string{"map"}, nil)
	}
	return &fillMetrics{
		filler: filler, log: log,
		entries: describe("entries", "Entries of a map that the data plane's programs fill."),
		size:    describe("size", "How many entries it has room for now."),
		limit:   describe("limit", "How many it may have room for."),
	}
}

// Describe is part of prometheus.Collector.
func (m *fillMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.entries, m.size, m.limit} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *fillMetrics) Collect(out chan<- prometheus.Metric) {
	filler := m.filler()
	if filler == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countPatience)
	defer cancel()
	fills, err := filler.Fills(ctx)
	if err != nil {
		m.log.Warn("the data plane doesn't say how full its maps are", "error", err)
		return
	}
	for _, f := range fills {
		for d, n := range map[*prometheus.Desc]int{m.entries: f.Entries, m.size: f.Size, m.limit: f.Limit} {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), f.Map)
		}
	}
}

func (s *switcher) filler() dataplane.Filler {
	f, _ := s.current().plane.(dataplane.Filler)
	return f
}
