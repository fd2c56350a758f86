package ipvs

import (
	"maps"
	"slices"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Networks are the networks of nodes on which this plane doesn't do all.
var Networks = []kernel.Unsupported{{
	Feature: kernel.Network, Value: "bridge without hairpin mode",
	Why: "a pod at such a bridge doesn't reach itself through a Service: the bridge sends no frame back where it came from, and packets are translated behind it",
}}

// Unsupported lists what the plane does not do on this machine.
func (p *Plane) Unsupported() []kernel.Unsupported {
	p.mu.Lock()
	defer p.mu.Unlock()
	unsupported := []kernel.Unsupported{
		{Feature: kernel.Scheduling, Value: string(model.Random), Why: "IPVS has no random scheduler; round robin is used"},
		{Feature: kernel.LocalhostNodePort, Why: "IPVS sends nothing from a loopback address to another machine"},
		{Feature: kernel.SharedClientPort, Why: "IPVS knows a backend's answers by the client's address and port alone; they go the way of the connection that was opened last"},
		{Feature: kernel.DirectReturn, Why: "IPVS' own direct routing can't change ports, and endpoints would need the Service's address; external traffic is masqueraded"},
		{Feature: kernel.StableFlows, Why: "only the node where a connection began can translate it; at another one the client is reset"},
	}
	unsupported = append(unsupported, Networks...)
	for _, s := range slices.Sorted(maps.Keys(p.choose.missing)) {
		unsupported = append(unsupported, kernel.Unsupported{
			Feature: kernel.Scheduling, Value: string(s),
			Why: "this kernel has no module ip_vs_" + string(s) + "; round robin is used",
		})
	}
	return unsupported
}
