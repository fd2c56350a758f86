package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

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
		err := n.repair() // without it, the server may never be well again
		if n.well.Load() {
			err = errors.Join(err, n.renew())
		}
		if err != nil && !failed {
			n.log.Error("DNS questions of this node may be answered by others", "error", err)
		}
		failed = err != nil
	}
}

// repair puts back what leads questions here if somebody removed it, as
// `nft flush ruleset` does.
func (n *names) repair() error {
	repaired, err := n.lease.Repair()
	if err != nil {
		return fmt.Errorf("repair what leads DNS questions to this node: %w", err)
	}
	if repaired {
		n.agent.repairs.done("what leads DNS questions to this node")
		signal(n.agent.planes.drift) // what removed it may have removed more, and not every mode notices
	}
	return nil
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
	return n.agent.planes.bypass(n.config.Addresses, lease.Term-renewPeriod)
}

// endLease has the plane forward questions at once.
func (n *names) endLease() {
	if n.lease == nil {
		return
	}
	if err := n.agent.planes.bypass(n.config.Addresses, 0); err != nil {
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
				if err := bypass(model.Key{Addr: a, Port: servicePort, Proto: proto}, term); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
