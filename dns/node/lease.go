package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairway-net/fairway/dns/redirect"
)

// renewPeriod leaves room for an agent that has to wait for a processor.
const renewPeriod = redirect.Term / 5

// keepLease renews the lease while the server is well, until ctx is done. If
// this process is killed or hangs, the lease ends by itself.
func (n *DNS) keepLease(ctx context.Context) {
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
			n.Log.Error("other nodes may answer this node's DNS questions", "error", err)
		}
		failed = err != nil
	}
}

// repair puts back what leads questions here if somebody removed it, as
// `nft flush ruleset` does.
func (n *DNS) repair() error {
	repaired, err := n.lease.Repair()
	if err != nil {
		return fmt.Errorf("repair what leads DNS questions to this node: %w", err)
	}
	if repaired {
		n.Repaired()
	}
	return nil
}

// renew renews the lease. A plane that sees packets before it must let them
// pass for no longer than it runs.
func (n *DNS) renew() error {
	if n.lease == nil {
		return nil
	}
	if err := n.lease.Renew(); err != nil {
		return err
	}
	return n.Bypass(n.Addresses, redirect.Term-renewPeriod)
}

// endLease has the plane forward questions at once.
func (n *DNS) endLease() {
	if n.lease == nil {
		return
	}
	if err := n.Bypass(n.Addresses, 0); err != nil {
		n.Log.Warn("DNS questions are passed to other nodes late", "error", err)
	}
	if err := n.lease.End(); err != nil {
		n.Log.Warn("DNS questions are passed to other nodes late", "error", err)
	}
}

func (n *DNS) closeLease() error {
	if n.lease == nil {
		return nil
	}
	return n.lease.Close()
}
