package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// buildMetrics says which program this is, and in which mode.
type buildMetrics struct {
	version      string
	mode         func() string
	build, plane *prometheus.Desc
}

func newBuildMetrics(version string, mode func() string) *buildMetrics {
	return &buildMetrics{
		version: version, mode: mode,
		build: prometheus.NewDesc("fairway_build_info", "1, with the version of this program.", []string{"version", "goversion"}, nil),
		plane: prometheus.NewDesc("fairway_mode", "1, with the mode in force.", []string{"mode"}, nil),
	}
}

// Describe is part of prometheus.Collector.
func (m *buildMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.build
	out <- m.plane
}

// Collect is part of prometheus.Collector.
func (m *buildMetrics) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(m.build, prometheus.GaugeValue, 1, m.version, runtime.Version())
	out <- prometheus.MustNewConstMetric(m.plane, prometheus.GaugeValue, 1, m.mode())
}
