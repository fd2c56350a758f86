package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/dns/lease"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/model"
)

// DNS is how an agent serves the cluster's names on its node.
type DNS struct {
	dns.Options
	// Addresses are the DNS Service's.
	Addresses []netip.Addr
	// Port is where other nodes find this one's server, at the node's own
	// addresses, while theirs is unwell; 0 offers it to nobody.
	Port uint16
	// Clients may ask at that port; without any, those with private addresses
	// and pods.
	Clients []netip.Prefix
	// WatchPods lets the server know the pods of this node that no slice
	// lists. The role of a kube-proxy doesn't allow it.
	WatchPods bool
}

const (
	dnsProbePeriod   = time.Second
	dnsProbePatience = time.Second
	// dnsProbeFailures in a row make the server unwell.
	dnsProbeFailures = 3
)

// names serves DNS on this node: while its server is well, questions to the
// Service's address are on lease to it. The plane forwards them to other nodes'
// servers at all times, which shows when they aren't.
type names struct {
	agent     *Agent
	config    *DNS // nil serves none
	index     *dns.Index
	server    *dns.Server
	node      []netip.Addr // where other nodes find the server
	lease     *lease.Lease // nil if this machine can't have one
	well      atomic.Bool
	again     string                     // added to what is logged when the server is well
	own       *discoveryv1.EndpointSlice // as last written
	published *bool                      // whether others have been told that it is ready
	log       *slog.Logger

	// Of the loop's goroutine alone:
	mark    uint64 // of the table last taken
	inForce *model.Table
}

// newNames prepares what must be there before the watches start.
func newNames(a *Agent) (*names, error) {
	n := &names{agent: a, config: a.config.DNS, log: a.config.Log}
	if n.config == nil {
		return n, nil
	}
	if err := n.config.Validate(); err != nil {
		return nil, err
	}
	if len(n.config.Addresses) == 0 {
		return nil, errors.New("cluster DNS address: not given")
	}
	n.index = dns.NewIndex(dns.IndexConfig{
		Zone: n.config.Zone, TTL: n.config.TTL, Servers: n.config.Addresses, NodeName: a.config.NodeName, Gated: true,
		Outside: n.config.OutsideZone(),
	})
	a.state.names = n.index
	return n, n.open()
}

// open prepares the lease. Where there can be none, for lack of nftables, this
// node's server is one of those that the plane forwards to.
func (n *names) open() (err error) {
	n.lease, err = lease.Open(n.config.Addresses)
	switch {
	case err == nil:
		n.agent.state.setServed(n.config.Addresses, n.sliceName())
	case n.config.Port == 0:
		return fmt.Errorf("serve DNS without a port at the node's address: %w", err)
	default:
		n.log.Warn("DNS questions may be answered by any node", "error", err)
	}
	return nil
}

// run serves until ctx is done, or removes what an earlier agent left.
func (n *names) run(ctx context.Context, group *errgroup.Group) error {
	if n.config == nil {
		return lease.Cleanup()
	}
	if err := n.start(ctx); err != nil || n.server == nil {
		return err
	}
	if n.config.WatchPods {
		group.Go(func() error { n.watchPods(ctx); return nil })
	}
	if n.lease != nil {
		group.Go(func() error { n.keepLease(ctx); return nil })
	}
	group.Go(func() error { n.server.GuardLoops(ctx, n.at(), dns.LoopPeriod); return nil })
	ticker := time.NewTicker(dnsProbePeriod)
	defer ticker.Stop()
	for failures, unoffered := 0, 0; ; {
		err := dns.Probe(ctx, n.at(), n.config.Zone, dnsProbePatience)
		if ctx.Err() != nil {
			return nil
		}
		if failures++; err == nil {
			failures = 0
		}
		n.countFailures(failures, err)
		if len(n.node) > 0 {
			unoffered = n.countUnoffered(ctx, unoffered, n.publish(ctx, failures == 0))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// countUnoffered says once that others can't be offered this node's DNS, and once
// that they are again. The first time the Node may not be there yet. It returns how
// often in a row it didn't work.
func (n *names) countUnoffered(ctx context.Context, before int, err error) int {
	switch {
	case err == nil && before > 1:
		n.log.Info("this node's DNS is offered to others now")
	case err != nil && before == 1 && ctx.Err() == nil:
		n.log.Warn("this node's DNS is not offered to others yet; going on trying", "error", err)
	}
	if err == nil {
		return 0
	}
	return before + 1
}

// countFailures decides whether the server is well after so many failures in a row.
func (n *names) countFailures(failures int, reason error) {
	switch failures {
	case 0:
		if !n.well.Swap(true) {
			n.log.Info("DNS on this node is used" + n.again)
			n.again = " again"
			if err := n.renew(); err != nil {
				n.log.Error("DNS questions of this node may be answered by others", "error", err)
			}
		}
	case dnsProbeFailures:
		if n.well.Swap(false) {
			n.log.Error("DNS on this node is unwell; other nodes' is used", "error", reason)
			n.endLease()
		}
	}
}

// close hands the questions to other nodes and ends the server: the loop has
// ended by now. If there are no others, questions wait for the next agent.
func (n *names) close() error {
	if n.server == nil {
		return n.closeLease()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n.retire(ctx)
	n.endLease()
	return errors.Join(n.server.Stop(), n.closeLease())
}

func (n *names) watchPods(ctx context.Context) {
	source := kube.Source{
		Client: n.agent.client.CoreV1().RESTClient(), Resource: "pods",
		Fields: fields.OneTermEqualSelector("spec.nodeName", n.agent.config.NodeName),
	}
	kube.Watch(ctx, source, kube.Sink[*corev1.Pod]{Set: n.index.SetPod, Delete: n.index.DeletePod, Synced: func() {}})
}
