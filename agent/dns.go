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
	// WatchPods lets the server know the pods of this node that no slice
	// lists. The role of a kube-proxy doesn't allow it.
	WatchPods bool
}

const (
	dnsProbePeriod   = time.Second
	dnsProbePatience = 2 * time.Second
	// dnsProbeFailures in a row make the server unwell.
	dnsProbeFailures = 3
)

// names serves DNS on this node: at the Service's address as long as it is
// well, and otherwise it has the plane forward to other nodes' servers.
type names struct {
	agent     *Agent
	config    *DNS // nil serves none
	index     *dns.Index
	server    *dns.Server
	node      []netip.Addr               // where other nodes find the server
	untracked bool                       // of connection tracking
	held      bool                       // the plane leaves the address to the server
	own       *discoveryv1.EndpointSlice // as last written
	published *bool                      // whether others have been told that it is ready
	log       *slog.Logger

	// Of the loop's goroutine alone:
	mark    uint64 // of the table last taken
	inForce *model.Table
	done    atomic.Uint64 // the mark that is in force
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
	})
	a.state.names = n.index
	// From the first table on: a plane that listens itself would be in the way.
	a.state.setServed(n.config.Addresses)
	n.held = true
	return n, nil
}

// tabled notes that the loop took a table, which may be in force already.
func (n *names) tabled(table *model.Table, mark uint64) {
	if n.index == nil || table == nil {
		return
	}
	n.mark = mark
	if table == n.inForce {
		n.applied(table)
	}
}

// applied notes that the table last taken is in force.
func (n *names) applied(table *model.Table) {
	if n.index == nil {
		return
	}
	n.inForce = table
	n.index.Applied(n.mark)
	n.done.Store(n.mark)
}

// run serves until ctx is done, or removes what an earlier agent left.
func (n *names) run(ctx context.Context, group *errgroup.Group) error {
	if n.config == nil {
		return dns.Cleanup()
	}
	if err := n.start(ctx); err != nil {
		return err
	}
	if n.server == nil {
		return nil
	}
	if n.config.WatchPods {
		group.Go(func() error { n.watchPods(ctx); return nil })
	}
	at := n.reachable()
	group.Go(func() error { n.server.GuardLoops(ctx, at, dns.LoopPeriod); return nil })
	ticker := time.NewTicker(dnsProbePeriod)
	defer ticker.Stop()
	failures := 0
	for {
		err := dns.Probe(ctx, n.reachable(), n.config.Zone, dnsProbePatience)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
		default:
			if failures++; failures == dnsProbeFailures && n.held {
				n.log.Error("DNS on this node is unwell; other nodes' is used", "error", err)
			}
		}
		if len(n.node) > 0 {
			if err := n.publish(ctx, failures == 0); err != nil && ctx.Err() == nil {
				n.log.Warn("this node's DNS is not offered to others yet", "error", err)
			}
		}
		if failures == 0 {
			n.hold(ctx)
		} else if failures >= dnsProbeFailures {
			n.release(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// start brings the server up. It tries for as long as somebody else has the
// port: a relay of the userspace plane may, until the plane has let go of it.
func (n *names) start(ctx context.Context) error {
	if err := dns.Hold(n.config.Addresses); err != nil {
		return err
	}
	var listen []netip.AddrPort
	for _, a := range n.config.Addresses {
		listen = append(listen, netip.AddrPortFrom(a, 53))
	}
	if n.config.Port != 0 {
		all, err := localAddresses()
		if err != nil {
			return err
		}
		n.node = primaryAddresses(all)
		for _, a := range n.node {
			listen = append(listen, netip.AddrPortFrom(a, n.config.Port))
		}
	}
	config, err := n.config.Server(n.index, listen, n.log)
	if err != nil {
		return err
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 15*time.Second) {
		if n.server, err = dns.Start(config); err == nil {
			n.log.Info("DNS started", "zone", n.config.Zone, "at", fmt.Sprint(listen))
			return nil
		}
		n.log.Warn("trying again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// reachable is where this node's server is asked how it is.
func (n *names) reachable() netip.AddrPort {
	if !n.held && len(n.node) > 0 {
		return netip.AddrPortFrom(n.node[0], n.config.Port)
	}
	return netip.AddrPortFrom(n.config.Addresses[0], 53)
}

// hold has questions to the Service's address answered here.
func (n *names) hold(ctx context.Context) {
	if n.held {
		n.untrack()
		return
	}
	if err := dns.Hold(n.config.Addresses); err != nil {
		n.log.Error("DNS doesn't have its address", "error", err)
		return
	}
	n.agent.state.setServed(n.config.Addresses)
	if !n.inForceSince(ctx) {
		return
	}
	n.held = true
	n.untrack()
}

// untrack keeps questions from being tracked, now that none is translated.
func (n *names) untrack() {
	if n.untracked {
		return
	}
	n.untracked = true
	if err := dns.Untrack(n.config.Addresses); err != nil {
		n.log.Warn("DNS questions are tracked as connections", "error", err)
	}
}

// release has the plane forward them, before the address goes.
func (n *names) release(ctx context.Context) {
	if !n.held || len(n.node) == 0 {
		return
	}
	n.untracked = false
	if err := dns.Track(); err != nil {
		n.log.Warn("DNS questions to other nodes can't be tracked", "error", err)
	}
	n.agent.state.setServed(nil)
	if !n.inForceSince(ctx) {
		return
	}
	if err := dns.Release(); err != nil {
		n.log.Error("the DNS address is kept", "error", err)
		return
	}
	n.held = false
}

// inForceSince waits until what has been set before is in force.
func (n *names) inForceSince(ctx context.Context) bool {
	mark := n.index.Mark()
	signal(n.agent.state.wake)
	for n.done.Load() <= mark {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	return true
}

// close hands the questions to other nodes and ends the server: the loop has
// ended by now.
func (n *names) close() error {
	if n.server == nil {
		return nil
	}
	var errs []error
	if n.held && len(n.node) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		errs = append(errs, dns.Track())
		n.agent.state.setServed(nil)
		n.retire(ctx)
		if table, _, _ := n.agent.state.table(); table != nil {
			errs = append(errs, n.agent.planes.current().plane.Apply(ctx, table, false))
		}
	}
	errs = append(errs, dns.Release(), n.server.Stop())
	return errors.Join(errs...)
}

func (n *names) watchPods(ctx context.Context) {
	source := kube.Source{
		Client: n.agent.client.CoreV1().RESTClient(), Resource: "pods",
		Fields: fields.OneTermEqualSelector("spec.nodeName", n.agent.config.NodeName),
	}
	kube.Watch(ctx, source, kube.Sink[*corev1.Pod]{Set: n.index.SetPod, Delete: n.index.DeletePod, Synced: func() {}})
}
