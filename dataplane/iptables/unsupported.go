package iptables

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/routelocalnet"
	"github.com/fairway-net/fairway/model"
)

// Networks are the networks of nodes on which this plane doesn't do all.
var Networks = []kernel.Unsupported{{
	Feature: kernel.Network, Value: "bridge without hairpin mode",
	Why: "a pod at such a bridge doesn't reach itself through a Service: the bridge sends no frame back where it came from, and packets are translated behind it",
}}

// limits are what this machine can't do of what iptables can.
type limits struct{ noSCTP, noLocalnet bool }

// unsupported lists what this plane, or this machine with it, doesn't do.
func unsupported(ctx context.Context, tool *iptables.Tool) (limits, []kernel.Unsupported) {
	var l limits
	list := []kernel.Unsupported{{
		Feature: kernel.LocalhostNodePort, Value: "IPv6",
		Why: "Linux never routes packets from ::1 out of the machine",
	}}
	if !routelocalnet.Possible() {
		l.noLocalnet = true
		list = append(list, kernel.Unsupported{
			Feature: kernel.LocalhostNodePort, Value: "IPv4",
			Why: "the sysctl net.ipv4.conf.all.route_localnet can't be set here",
		})
	}
	if n := rememberedClients(); n < plentyOfClients {
		list = append(list, kernel.Unsupported{
			Feature: kernel.ManyClients, Value: strconv.Itoa(n),
			Why: fmt.Sprintf("xt_recent remembers the last %d clients of each endpoint; more if the module is loaded with a greater ip_list_tot", n),
		})
	}
	if err := probeSCTP(ctx, tool); err != nil {
		l.noSCTP = true
		list = append(list, kernel.Unsupported{Feature: kernel.SCTPProtocol, Why: err.Error()})
	}
	list = slices.Concat(list, Networks, conntrack.Unsupported())
	list = append(list, kernel.Unsupported{
		Feature: kernel.DirectReturn,
		Why:     "netfilter translates back on the node that translated; external traffic is masqueraded",
	}, kernel.Unsupported{
		Feature: kernel.StableFlows,
		Why:     "only the node where a connection began can translate it; at another one the client is reset",
	})
	for _, s := range []model.Scheduler{
		model.RoundRobin, model.WeightedRoundRobin, model.LeastConnection, model.WeightedLeastConnection, model.DestinationHashing,
		model.SourceHashing, model.ShortestExpectedDelay, model.NeverQueue, model.MaglevHashing,
		model.MaglevPortHashing,
	} {
		list = append(list, kernel.Unsupported{
			Feature: kernel.Scheduling, Value: string(s),
			Why: "iptables rules choose at random, in proportion to the weights",
		})
	}
	return l, list
}

func probeSCTP(ctx context.Context, tool *iptables.Tool) error {
	var in iptables.Input
	in.Block("nat").Chain(markMasqChain, "-p sctp -m sctp --dport 1 -j RETURN")
	return tool.Test(ctx, iptables.IPv4, in.Bytes())
}

// recentParameter is how many addresses each of xt_recent's lists holds
// (net/netfilter/xt_recent.c). It is set when the module is loaded.
const recentParameter = "/sys/module/xt_recent/parameters/ip_list_tot"

// recentDefault holds if the module isn't told otherwise.
const recentDefault = 100

// plentyOfClients is a number that no endpoint's clients are expected to reach.
const plentyOfClients = 1 << 16

// rememberedClients is how many clients with session affinity an endpoint may
// have before the one that was away longest is forgotten.
func rememberedClients() int {
	text, err := os.ReadFile(recentParameter)
	if err != nil {
		return recentDefault // not loaded yet
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return recentDefault
	}
	return n
}

// Unsupported lists what this plane doesn't do.
func (p *Plane) Unsupported() []kernel.Unsupported { return p.unsupported }
