package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
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
	// Clients may ask at that port; without any, those with private addresses
	// and pods.
	Clients []netip.Prefix
	// WatchPods lets the server know the pods of this node that no slice
	// lists. The role of a kube-proxy doesn't allow it.
	WatchPods bool
}

const (
	dnsProbePeriod   = time.Second
	dnsProbePatience = 2 * time.Second
	// dnsProbeFailures in a row make the server unwell.
	dnsProbeFailures = 3
	// A fault that only those see who ask at the Service's address shows once it
	// is held again. So it is held again later each time, up to the longest pause.
	dnsFirstPause, dnsLongestPause = time.Second, time.Minute
)

// The modes in which packets to the address go other ways than by translation
// of what is tracked.
const relayMode, ipvsMode = "userspace", "ipvs"

// names serves DNS on this node: at the Service's address as long as it is
// well, and otherwise it has the plane forward to other nodes' servers.
type names struct {
	agent     *Agent
	config    *DNS // nil serves none
	index     *dns.Index
	server    *dns.Server
	node      []netip.Addr               // where other nodes find the server
	untracked bool                       // of connection tracking
	addressed bool                       // this machine has the address
	held      atomic.Bool                // the plane leaves the address to the server
	decided   bool                       // of the loop's goroutine: what the first table says of others
	trial     bool                       // held again, and not yet asked
	pause     time.Duration              // how long the address stays with others
	until     time.Time                  // then this node may have it again
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
	if n.early() {
		a.state.setServed(n.config.Addresses)
		n.held.Store(true)
	}
	return n, nil
}

// early reports whether the address must be this node's server's from the first
// table on. Otherwise an agent that comes up leaves it with other nodes' until
// its own answers, as they have had it since an earlier agent here ended.
func (n *names) early() bool {
	return n.config.Port == 0 || // there are no others
		n.agent.Mode() == relayMode // whose listeners would be in the way
}

// alone looks at the first table, and has the address served here at once if
// nobody else serves it: then the table is to be made again.
func (n *names) alone(table *model.Table) bool {
	if n.config == nil || table == nil || n.decided {
		return false
	}
	n.decided = true
	if n.held.Load() || n.elsewhere(table) {
		return false
	}
	n.agent.state.setServed(n.config.Addresses)
	n.held.Store(true)
	return true
}

// elsewhere reports whether a table in which the address isn't served here
// forwards it to other nodes.
func (n *names) elsewhere(table *model.Table) bool {
	front := table.Frontend(model.Key{Addr: n.config.Addresses[0], Port: 53, Proto: model.UDP})
	if front == nil {
		return false
	}
	pool := table.Pool(front.Routes[model.FromPod].Pool)
	return pool != nil && slices.ContainsFunc(pool.Backends, func(b model.Backend) bool { return !b.Local })
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
	at := netip.AddrPortFrom(n.config.Addresses[0], 53)
	if len(n.node) > 0 {
		at = netip.AddrPortFrom(n.node[0], n.config.Port)
	}
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
		case n.trial:
			failures = dnsProbeFailures
		default:
			failures++
		}
		if failures == dnsProbeFailures && n.held.Load() {
			n.log.Error("DNS on this node is unwell; other nodes' is used", "error", err)
		}
		n.act(ctx, failures)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// act does what so many failures in a row ask for.
func (n *names) act(ctx context.Context, failures int) {
	if len(n.node) > 0 {
		if err := n.publish(ctx, failures == 0); err != nil && ctx.Err() == nil {
			n.log.Warn("this node's DNS is not offered to others yet", "error", err)
		}
	}
	switch {
	case failures >= dnsProbeFailures:
		n.release(ctx)
	case failures > 0:
	case n.held.Load():
		if n.trial {
			n.trial = false
			n.log.Info("DNS on this node is used again")
		}
		if time.Since(n.until) > dnsLongestPause { // it has been well for long
			n.pause = 0
		}
		n.hold(ctx)
	case time.Now().After(n.until):
		n.trial = n.pause > 0
		n.hold(ctx)
	}
}

// start brings the server up. It tries for as long as somebody else has the
// port: a relay of the userspace plane may, until the plane has let go of it.
func (n *names) start(ctx context.Context) error {
	if n.early() || n.config.Corefile != "" {
		if err := n.address(); err != nil {
			return err
		}
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
	config, err := n.config.Server(n.index, listen, n.guard(), n.log)
	if err != nil {
		return err
	}
	config.FreeBind = true // until it has been asked, the address is elsewhere
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 15*time.Second) {
		if n.server, err = dns.Start(config); err == nil {
			n.log.Info("DNS started", "zone", n.config.Zone, "at", fmt.Sprint(listen))
			return n.unpark(ctx)
		}
		n.log.Warn("trying again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// guard keeps strangers from the port at the node's address: who has a public
// address, and isn't known to be of the cluster.
func (n *names) guard() dns.Guard {
	g := dns.Guard{Port: n.config.Port, Clients: n.config.Clients}
	if len(g.Clients) == 0 {
		g.Clients = append(dns.PrivateNetworks(), n.agent.config.Compile.Pods.Prefixes...)
	}
	for _, a := range n.node { // it asks itself how it is
		g.Clients = append(g.Clients, netip.PrefixFrom(a, a.BitLen()))
	}
	return g
}

// unpark lets questions through that an earlier agent made wait, if there is no
// other way to ask the server how it is: once it knows what to answer.
func (n *names) unpark(ctx context.Context) error {
	if len(n.node) > 0 {
		return nil
	}
	for !n.index.Ready() {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := dns.Track(); err != nil {
		n.log.Warn("DNS questions may have to wait", "error", err)
	}
	return nil
}

// address gives the Service's address to this machine.
func (n *names) address() error {
	if err := dns.Hold(n.config.Addresses); err != nil {
		return err
	}
	n.addressed = true
	return nil
}

// reachable is where this node's server is asked how it is: as pods ask it,
// while they do.
func (n *names) reachable() netip.AddrPort {
	if len(n.node) > 0 && !(n.held.Load() && n.untracked) {
		return netip.AddrPortFrom(n.node[0], n.config.Port)
	}
	return netip.AddrPortFrom(n.config.Addresses[0], 53)
}

// hold has questions to the Service's address answered here.
func (n *names) hold(ctx context.Context) {
	if !n.addressed {
		if err := n.address(); err != nil {
			n.log.Error("DNS doesn't have its address", "error", err)
			return
		}
	}
	if !n.held.Load() {
		n.agent.state.setServed(n.config.Addresses)
		if !n.inForceSince(ctx) {
			return
		}
		n.held.Store(true)
	}
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
	if !n.held.Load() || len(n.node) == 0 {
		return
	}
	n.trial = false
	n.pause = min(max(dnsFirstPause, 2*n.pause), dnsLongestPause)
	n.agent.state.setServed(nil)
	err := n.handOver(func() error {
		if !n.inForceSince(ctx) {
			return ctx.Err()
		}
		return nil
	})
	n.untracked = false
	if err != nil {
		n.log.Error("DNS questions aren't handed to other nodes", "error", err)
		return
	}
	n.held.Store(false)
	n.until = time.Now().Add(n.pause)
	if err := dns.Release(); err != nil {
		n.log.Error("the DNS address is kept", "error", err)
		return
	}
	n.addressed = false
}

// handOver has the plane forward the questions with a table that says so. What
// isn't tracked isn't translated, so tracking comes last; but IPVS takes
// packets whether they are tracked or not, and then they must be.
func (n *names) handOver(apply func() error) error {
	if n.agent.Mode() == ipvsMode {
		return errors.Join(dns.Track(), apply())
	}
	if err := apply(); err != nil {
		return err
	}
	return dns.Track()
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

// close hands the questions to other nodes, or has them wait for the next agent
// if there are none, and ends the server: the loop has ended by now.
func (n *names) close() error {
	if n.server == nil {
		return nil
	}
	if !n.held.Load() {
		return errors.Join(dns.Release(), n.server.Stop())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n.agent.state.setServed(nil)
	n.retire(ctx)
	table, _, _ := n.agent.state.table()
	if n.early() || table == nil || !n.elsewhere(table) {
		if err := dns.Park(n.config.Addresses); err != nil {
			n.log.Warn("DNS questions are refused until the next agent is up", "error", err)
		}
		return n.server.Stop()
	}
	err := n.handOver(func() error { return n.agent.planes.Apply(ctx, table, false) })
	return errors.Join(err, n.server.Stop(), dns.Release())
}

func (n *names) watchPods(ctx context.Context) {
	source := kube.Source{
		Client: n.agent.client.CoreV1().RESTClient(), Resource: "pods",
		Fields: fields.OneTermEqualSelector("spec.nodeName", n.agent.config.NodeName),
	}
	kube.Watch(ctx, source, kube.Sink[*corev1.Pod]{Set: n.index.SetPod, Delete: n.index.DeletePod, Synced: func() {}})
}
