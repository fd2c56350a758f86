package addresses

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/fairway-net/fairway/controller/addresses/allocator"
)

// Names and labels are those that MetalLB's dashboards ask for.
var (
	inUse = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "metallb_allocator_addresses_in_use_total", Help: "Addresses of the pool that Services have.",
	}, []string{"pool"})
	total = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "metallb_allocator_addresses_total", Help: "Addresses of the pool.",
	}, []string{"pool"})
)

// registered has /metrics of the process show the counts: the API server's, or
// that of the command that runs this controller alone.
var registered = sync.OnceFunc(func() { legacyregistry.RawMustRegister(inUse, total) })

func poolCounted(pool string, c allocator.Counts) {
	registered()
	assigned := float64(c.AssignedIPv4) + float64(c.AssignedIPv6)
	inUse.WithLabelValues(pool).Set(assigned)
	total.WithLabelValues(pool).Set(assigned + float64(c.AvailableIPv4) + float64(c.AvailableIPv6))
}

func poolGone(pool string) {
	inUse.DeleteLabelValues(pool)
	total.DeleteLabelValues(pool)
}
