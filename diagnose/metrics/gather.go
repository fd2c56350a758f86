package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // registers rest_client_*: there is no other way to have them
)

// libraryMetrics are the prefixes of what an agent shows beside its own: what
// client-go counts of requests to the API, and the Go runtime's. The API
// server's libraries, which are in the same binary, register theirs in the same
// place.
var libraryMetrics = []string{"rest_client_", "go_", "process_"}

// libraries gathers the metrics of libraries that kube-proxy shows too.
func libraries() ([]*dto.MetricFamily, error) {
	all, err := legacyregistry.DefaultGatherer.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return !slices.ContainsFunc(libraryMetrics, func(prefix string) bool { return strings.HasPrefix(f.GetName(), prefix) })
	}), err
}

// Gatherer is all that an agent shows.
func (m *Metrics) Gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{m.Registry, prometheus.GathererFunc(libraries)}
}
