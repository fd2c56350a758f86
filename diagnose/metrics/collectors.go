package metrics

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/model"
)

// Source is what collectors ask when somebody looks.
type Source struct {
	Table     func() *model.Table // the one in force
	Plane     func() PlaneReader  // the one in force
	Log       *slog.Logger
	Version   string
	Mode      func() string
	Services  int // of how many Services there are metrics
	Endpoints int // of how many endpoints there are metrics
}

// Collectors are what is worked out when somebody looks.
func Collectors(s Source) []prometheus.Collector {
	list := []prometheus.Collector{
		newLocalEndpoints(s.Table), newPlaneMetrics(s.Plane, s.Log), newTableMetrics(s.Table), newBuildMetrics(s.Version, s.Mode),
	}
	if s.Services > 0 {
		list = append(list, newServiceMetrics(s.Services, s.Table, s.Plane, s.Log))
	}
	if s.Endpoints > 0 {
		list = append(list, newEndpointMetrics(s.Endpoints, s.Table, s.Plane, s.Log))
	}
	return list
}
