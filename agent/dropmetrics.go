package agent

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/dataplane"
)

// dropMetrics shows how many packets a plane dropped because something went wrong.
type dropMetrics struct {
	dropper func() dataplane.Dropper // nil if the plane has none
	log     *slog.Logger
	packets *prometheus.Desc
}

func newDropMetrics(dropper func() dataplane.Dropper, log *slog.Logger) *dropMetrics {
	return &dropMetrics{dropper: dropper, log: log, packets: prometheus.NewDesc("fairway_dropped_packets_total",
		"Packets that the data plane dropped because something went wrong, by what that was.", []string{"reason"}, nil)}
}

// Describe is part of prometheus.Collector.
func (m *dropMetrics) Describe(out chan<- *prometheus.Desc) { out <- m.packets }

// Collect is part of prometheus.Collector.
func (m *dropMetrics) Collect(out chan<- prometheus.Metric) {
	dropper := m.dropper()
	if dropper == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countPatience)
	defer cancel()
	drops, err := dropper.Drops(ctx)
	if err != nil {
		m.log.Warn("the data plane doesn't say what it dropped", "error", err)
		return
	}
	for _, d := range drops {
		out <- prometheus.MustNewConstMetric(m.packets, prometheus.CounterValue, float64(d.Packets), d.Reason)
	}
}

func (s *switcher) dropper() dataplane.Dropper {
	d, _ := s.current().plane.(dataplane.Dropper)
	return d
}
