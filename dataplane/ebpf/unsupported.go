package ebpf

import (
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Unsupported implements dataplane.Plane.
func (p *Plane) Unsupported() []kernel.Unsupported {
	unsupported := []kernel.Unsupported{
		{Feature: kernel.Hairpin, Why: "a socket that gets its own pod as the backend is connected directly, and needs no translation"},
	}
	if p.cgroupLimit != "" {
		unsupported = append(unsupported, sock.CgroupUnsupported(p.cgroupLimit))
	}
	return unsupported
}
