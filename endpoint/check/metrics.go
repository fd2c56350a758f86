package check

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	endpointsDesc = prometheus.NewDesc("fairway_health_check_endpoints", "Endpoints that this node checks, by what is known of them.", []string{"health"}, nil)
	checksDesc    = prometheus.NewDesc("fairway_health_checks_total", "Health checks that this node ran, by how they ended.", []string{"outcome"}, nil)
)

// Describe is part of prometheus.Collector.
func (c *Checker) Describe(out chan<- *prometheus.Desc) {
	out <- endpointsDesc
	out <- checksDesc
}

// Collect is part of prometheus.Collector.
func (c *Checker) Collect(out chan<- prometheus.Metric) {
	for h, n := range c.checks.Known() {
		out <- prometheus.MustNewConstMetric(endpointsDesc, prometheus.GaugeValue, float64(n), Health(h).String())
	}
	for o := Passed; o <= Wrong; o++ {
		out <- prometheus.MustNewConstMetric(checksDesc, prometheus.CounterValue, float64(c.checks.Asked(o)), o.String())
	}
}
