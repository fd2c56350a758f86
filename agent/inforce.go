package agent

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/model"
)

// Started says what is in force after the start.
type Started struct {
	Mode, Why string // the mode, and why not another
	Services  int
}

// sayInForce says, once, that the kernel has everything now.
func (a *Agent) sayInForce(t *model.Table) {
	services, endpoints := metrics.ServicesIn(t), endpointsIn(t)
	a.config.Log.Info("Services are in force", "services", services, "endpoints", endpoints,
		"mode", a.Mode(), "took", time.Since(a.began).Round(time.Millisecond))
	if a.config.Started != nil {
		in := a.planes.current()
		a.config.Started(Started{Mode: in.mode, Why: in.why, Services: services})
	}
}

// endpointsIn counts the addresses and ports that take new connections, by their hashes:
// a set of fifty thousand would be 6 MB.
func endpointsIn(t *model.Table) int {
	seed := maphash.MakeSeed()
	var hashes []uint64
	for p := range t.Pools() {
		for _, b := range p.Backends {
			hashes = append(hashes, maphash.Comparable(seed, b.AddrPort()))
		}
	}
	slices.Sort(hashes)
	return len(slices.Compact(hashes))
}
