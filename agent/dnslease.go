package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dns/lease"
	"github.com/fairway-net/fairway/model"
)

// renewPeriod leaves room for an agent that has to wait for a processor.
const renewPeriod = lease.Term / 5

// keepLease renews the lease while the server is well, until ctx is done. If
// this process is killed or hangs, the lease ends by itself.
func (n *names) keepLease(ctx context.Context) {
	ticker := time.NewTicker(renewPeriod)
	defer ticker.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !n.well.Load() {
			continue
		}
		err := n.renew()
		if err != nil && !failed {
			n.log.Error("DNS questions of this node may be answered by others", "error", err)
		}
		failed = err != nil
	}
}

// renew renews the lease. A plane that sees packets before it must let them
// pass for no longer than it runs.
func (n *names) renew() error {
	if n.lease == nil {
		return nil
	}
	if err := n.lease.Renew(); err != nil {
		return err
	}
	return n.agent.planes.yield(n.config.Addresses, lease.Term-renewPeriod)
}

// endLease has the plane forward questions at once.
func (n *names) endLease() {
	if n.lease == nil {
		return
	}
	if err := n.agent.planes.yield(n.config.Addresses, 0); err != nil {
		n.log.Warn("DNS questions are handed to other nodes late", "error", err)
	}
	if err := n.lease.End(); err != nil {
		n.log.Warn("DNS questions are handed to other nodes late", "error", err)
	}
}

func (n *names) closeLease() error {
	if n.lease == nil {
		return nil
	}
	return n.lease.Close()
}

// yield tells the planes that see packets first that those to the DNS Service
// at some addresses are not theirs, for some time.
func (s *switcher) yield(addrs []netip.Addr, term time.Duration) error {
	s.mu.Lock()
	planes := []dataplane.Plane{s.inForce.plane}
	if s.change != nil {
		planes = append(planes, s.change.to.plane)
	}
	s.mu.Unlock()
	for _, p := range planes {
		y, ok := p.(dataplane.Yielder)
		if !ok {
			continue
		}
		for _, a := range addrs {
			for _, proto := range []model.Protocol{model.UDP, model.TCP} {
				if err := y.Yield(model.Key{Addr: a, Port: servicePort, Proto: proto}, term); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
