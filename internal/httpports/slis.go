package httpports

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// SLIs count how health checks end, at /metrics/slis: the names, and the type and
// status of a check, are those of Kubernetes' components (KEP-3466). The check
// "ping" is kube-proxy's, which only says that the process answers; "rules" says
// whether what the API asked for is in force.
type SLIs struct {
	Registry *prometheus.Registry
	last     *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

// NewSLIs begins to count.
func NewSLIs() *SLIs {
	s := &SLIs{
		Registry: prometheus.NewRegistry(),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "kubernetes", Name: "healthcheck", Help: "How a health check ended the last time: 1 is well.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kubernetes", Name: "healthchecks_total", Help: "How health checks ended.",
		}, []string{"name", "type", "status"}),
	}
	began := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "process_start_time_seconds", Help: "When the process began, in seconds since 1970.",
	})
	began.Set(float64(time.Now().Unix()))
	s.Registry.MustRegister(s.last, s.total, began)
	return s
}

// Checked takes in how a health check of a type ("healthz", "livez") ended.
func (s *SLIs) Checked(of string, rules bool) {
	s.observe("ping", of, true)
	s.observe("rules", of, rules)
}

func (s *SLIs) observe(name, of string, ok bool) {
	value, status := 1.0, "success"
	if !ok {
		value, status = 0, "error"
	}
	s.last.WithLabelValues(name, of).Set(value)
	s.total.WithLabelValues(name, of, status).Inc()
}

// ServeHTTP answers at /metrics/slis. As with kube-proxy, DELETE begins to count
// anew.
func (s *SLIs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		s.last.Reset()
		s.total.Reset()
		fmt.Fprintln(w, "metrics reset")
		return
	}
	promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}
