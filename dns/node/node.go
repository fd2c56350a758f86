// Package node serves the cluster's names on one node, for the agent of that node. While
// its server is healthy, a lease leads questions to the DNS Service's address to it.
//
// node.go starts and ends it, server.go the server, lease.go the lease, slice.go how other
// nodes find the server, marks.go keeps names behind the table that forwards them.
package node

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/dns/redirect"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/model"
)

// Options are how a node serves the cluster's names.
type Options struct {
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

// Config is what the agent of a node gives to its DNS.
type Config struct {
	*Options // nil serves none
	NodeName string
	Client   kubernetes.Interface
	Log      *slog.Logger
	// PodRanges are addresses of pods, which may ask at the node's address.
	PodRanges []netip.Prefix
	// OwnAddresses are those of this machine by which others reach it.
	OwnAddresses func() ([]netip.Addr, error)
	// Served is told which addresses a server on this node answers at, and by which
	// slice other nodes know it.
	Served func([]netip.Addr, types.NamespacedName)
	// Bypass has the mode in force let questions to these addresses pass for a term.
	Bypass func([]netip.Addr, time.Duration) error
	// Repaired is told that somebody had removed what leads questions here.
	Repaired func()
}

const (
	probePeriod  = time.Second
	probeTimeout = time.Second
	// probeFailures in a row make the server unwell.
	probeFailures = 3
)

// DNS serves names on this node. The plane forwards questions to other nodes' servers at
// all times, which shows when they aren't on lease.
type DNS struct {
	Config
	Index     *dns.Index // nil where none is served
	server    *dns.Server
	node      []netip.Addr    // where other nodes find the server
	lease     *redirect.Lease // nil if this machine can't have one
	well      atomic.Bool
	again     string                     // added to what is logged when the server is well
	own       *discoveryv1.EndpointSlice // as last written
	published *bool                      // whether others have been told that it is ready
	seen      bool                       // the API has told of that slice

	// Of the loop's goroutine alone:
	mark    uint64 // of the table last taken
	inForce *model.Table
}

// New prepares what must be there before the watches start.
func New(config Config) (*DNS, error) {
	n := &DNS{Config: config}
	if n.Options == nil {
		return n, nil
	}
	if err := n.Validate(); err != nil {
		return nil, err
	}
	if len(n.Addresses) == 0 {
		return nil, errors.New("cluster DNS address: not given")
	}
	n.Index = dns.NewIndex(dns.IndexConfig{
		Zone: n.Zone, TTL: n.TTL, Servers: n.Addresses, NodeName: n.NodeName, Gated: true,
		Outside: n.OutsideZone(),
	})
	return n, n.open()
}

// open prepares the lease. Where there can be none, for lack of nftables, this
// node's server is one of those that the plane forwards to.
func (n *DNS) open() (err error) {
	n.lease, err = redirect.Open(n.Addresses, n.clients())
	switch {
	case err == nil:
		n.Served(n.Addresses, n.sliceName())
	case n.Port == 0:
		return fmt.Errorf("serve DNS without a port at the node's address: %w", err)
	default:
		n.Log.Warn("any node may answer this node's DNS questions", "error", err)
	}
	return nil
}

// Run serves until ctx is done, or removes what an earlier agent left.
func (n *DNS) Run(ctx context.Context, group *errgroup.Group) error {
	if n.Options == nil {
		return redirect.Cleanup()
	}
	if err := n.start(ctx); err != nil || n.server == nil {
		return err
	}
	if n.WatchPods {
		group.Go(func() error { n.watchPods(ctx); return nil })
	}
	if n.lease != nil {
		group.Go(func() error { n.keepLease(ctx); return nil })
	}
	group.Go(func() error { n.server.GuardLoops(ctx, n.at(), dns.LoopPeriod); return nil })
	ticker := time.NewTicker(probePeriod)
	defer ticker.Stop()
	for failures, unoffered := 0, 0; ; {
		err := dns.Probe(ctx, n.at(), n.Zone, probeTimeout)
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
func (n *DNS) countUnoffered(ctx context.Context, before int, err error) int {
	switch {
	case err == nil && before > 1:
		n.Log.Info("this node's DNS is available to other nodes")
	case err != nil && before == 1 && ctx.Err() == nil:
		n.Log.Warn("this node's DNS is not available to other nodes yet; trying again", "error", err)
	}
	if err == nil {
		return 0
	}
	return before + 1
}

// countFailures decides whether the server is well after so many failures in a row.
func (n *DNS) countFailures(failures int, reason error) {
	switch failures {
	case 0:
		if !n.well.Swap(true) {
			level := slog.LevelInfo
			if n.again == "" { // as expected, and not worth a line
				level = slog.LevelDebug
			}
			n.Log.Log(context.Background(), level, "DNS is ready"+n.again)
			n.again = " again"
			if err := n.renew(); err != nil {
				n.Log.Error("other nodes may answer this node's DNS questions", "error", err)
			}
		}
	case probeFailures:
		if n.well.Swap(false) {
			n.Log.Error("DNS on this node fails; other nodes answer", "error", reason)
			n.endLease()
		}
	}
}

// Close hands the questions to other nodes and ends the server: the loop has
// ended by now. If there are no others, questions wait for the next agent.
func (n *DNS) Close() error {
	if n.server == nil {
		return n.closeLease()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n.retire(ctx)
	n.endLease()
	return errors.Join(n.server.Stop(), n.closeLease())
}

func (n *DNS) watchPods(ctx context.Context) {
	source := kube.Source{
		Client: n.Client.CoreV1().RESTClient(), Resource: "pods",
		Fields: fields.OneTermEqualSelector("spec.nodeName", n.NodeName),
	}
	kube.Watch(ctx, source, kube.Sink[*corev1.Pod]{Set: n.Index.SetPod, Delete: n.Index.DeletePod, Synced: func() {}})
}
