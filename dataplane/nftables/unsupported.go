package nftables

import (
	"slices"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Networks are the networks of nodes on which this plane doesn't do all.
var Networks = []kernel.Unsupported{{
	Feature: kernel.Network, Value: "bridge without hairpin mode",
	Why: "a pod at such a bridge doesn't reach itself through a Service: the bridge sends no frame back where it came from, and packets are translated behind it",
}}

// Unsupported lists what this plane doesn't do: see dataplane.Plane.
func (p *Plane) Unsupported() []kernel.Unsupported {
	var list []kernel.Unsupported
	unsupported := func(s model.Scheduler, why string) {
		list = append(list, kernel.Unsupported{Feature: kernel.Scheduling, Value: string(s), Why: why + "; backends are chosen at random by weight"})
	}
	const shared = "rules are shared by all pools of one size, and so would the turn be"
	const counts = "nf_tables doesn't count the connections of each backend"
	unsupported(model.RoundRobin, shared)
	unsupported(model.WeightedRoundRobin, shared)
	for _, s := range []model.Scheduler{model.LeastConnection, model.WeightedLeastConnection, model.ShortestExpectedDelay, model.NeverQueue} {
		unsupported(s, counts)
	}
	unsupported(model.MaglevHashing, "nf_tables has no consistent hash")
	unsupported(model.MaglevPortHashing, "nf_tables has no consistent hash")
	list = slices.Concat(list, Networks, conntrack.Unsupported())
	list = append(list, kernel.Unsupported{Feature: kernel.DirectReturn, Why: "netfilter translates back on the node that translated; external traffic is masqueraded"},
		kernel.Unsupported{Feature: kernel.StableFlows, Why: "only the node where a connection began can translate it; at another one the client is reset"})
	if p.noLocalnet {
		list = append(list, kernel.Unsupported{Feature: kernel.LocalhostNodePort, Value: "IPv4",
			Why: "the sysctl net.ipv4.conf.all.route_localnet can't be set here"})
	}
	return append(list, kernel.Unsupported{Feature: kernel.LocalhostNodePort, Value: "IPv6",
		Why: "IPv6 drops what comes to ::1 from other interfaces, answers of backends included; node ports work on 127.0.0.1"})
}
