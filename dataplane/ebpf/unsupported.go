package ebpf

import (
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Networks are the networks of nodes on which this plane doesn't do all.
var Networks = []kernel.Unsupported{
	{Feature: kernel.Network, Value: "ipvlan", Why: "clients outside get no answer where the node's uplink is an ipvlan, or pods are ipvlans of it; another mode serves them"},
	{Feature: kernel.Network, Value: "IP over InfiniBand", Why: "programs know packets of Ethernet, tunnels and PPP; another mode serves others"},
}

// Unsupported implements dataplane.Plane.
func (p *Plane) Unsupported() []kernel.Unsupported {
	unsupported := []kernel.Unsupported{
		{Feature: kernel.Hairpin, Why: "a socket that gets its own pod as the backend is connected directly, and needs no translation"},
	}
	unsupported = append(unsupported, Networks...)
	if p.cgroupLimit != "" {
		unsupported = append(unsupported, sock.CgroupUnsupported(p.cgroupLimit))
	}
	return unsupported
}
