package agent

import (
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/dns/node"
	"github.com/fairway-net/fairway/internal/nodeaddrs"
	"github.com/fairway-net/fairway/model"
)

// newNames makes what serves DNS on this node, before the watches start.
func (a *Agent) newNames() error {
	names, err := node.New(node.Config{
		Options: a.config.DNS, NodeName: a.config.NodeName, Client: a.client, Log: a.config.Log,
		PodRanges: a.config.Compile.Pods.Prefixes,
		OwnAddresses: func() ([]netip.Addr, error) {
			all, err := ownAddresses()
			return nodeaddrs.Primary(all), err
		},
		Served: a.state.setServed, Bypass: a.planes.bypass,
		Repaired: func() {
			a.repairs.done("what leads DNS questions to this node")
			signal(a.planes.drift) // what removed it may have removed more, and not every mode notices
		},
	})
	if err != nil {
		return err
	}
	a.names, a.state.names = names, names.Index
	return nil
}

// bypass tells the modes that see packets first that those to the DNS Service
// at some addresses are not theirs, for some time.
func (s *switcher) bypass(addrs []netip.Addr, term time.Duration) error {
	s.mu.Lock()
	modes := []string{s.inForce.mode}
	if s.change != nil {
		modes = append(modes, s.change.to.mode)
	}
	s.mu.Unlock()
	for _, mode := range modes {
		bypass := s.kindOf(mode).Bypass
		if bypass == nil {
			continue
		}
		for _, a := range addrs {
			for _, proto := range []model.Protocol{model.UDP, model.TCP} {
				if err := bypass(model.Key{Addr: a, Port: 53, Proto: proto}, term); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
