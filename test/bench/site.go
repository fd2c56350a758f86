package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// site is the network: a node with an agent, the same without one beside it to
// compare with, and behind each a pod that is a client and a pod that answers
// at every endpoint address there is.
type site struct {
	lab     *topology.Lab
	node    *topology.Node
	client  *topology.Pod
	pods    *topology.Pod // behind the node, at every endpoint address
	bare    *topology.Pod // a client behind the node without agent
	workers *workers      // works in client
	close   []func() error
	// release lets others measure.
	release func() error
}

// endpointRange is where endpoints have their addresses: all of it answers.
var endpointRange = netip.MustParsePrefix("10.128.0.0/10")

// workerCount is how many may wait for a change to be in force at once.
const workerCount = 32

// The ports of the endpoints.
const (
	helloPort  = 8080 // TCP: says the address that was reached, and closes
	streamPort = 8081 // TCP: takes all that comes
	sinkPort   = 8082 // UDP: counts what comes
)

func newSite() (*site, error) {
	release, err := onlyOne(filepath.Join(os.TempDir(), "fairway-bench.lock"))
	if err != nil {
		return nil, err
	}
	if err := topology.Remove(labName); err != nil { // what a crash left
		return nil, errors.Join(err, release())
	}
	lab, err := topology.New(labName, topology.Options{})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	s := &site{lab: lab, release: release}
	if err := s.build(); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// onlyOne holds a lock until released or this process ends: another run would take
// this one's network for what a crash has left.
func onlyOne(path string) (release func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock benchmarks: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another benchmark is running on this machine")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f.Close, nil
}

func (s *site) build() (err error) {
	if s.node, s.client, err = s.half("node1"); err != nil {
		return err
	}
	bareNode, bare, err := s.half("bare")
	if err != nil {
		return err
	}
	s.bare = bare
	if err := joinNode(); err != nil {
		return err
	}
	if s.workers, err = newWorkers(s.client.Host, workerCount); err != nil {
		return err
	}
	s.close = append(s.close, s.workers.close)
	return trackConnections(bareNode)
}

// joinNode puts this process, whose threads are the clients, into the node's
// cgroup, where ebpf mode connects sockets to endpoints directly.
func joinNode() error {
	dir, err := topology.Cgroup(labName, "node1/client")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("join the node's cgroup: %w", err)
	}
	return nil
}

// half makes a node with its two pods.
func (s *site) half(name string) (*topology.Node, *topology.Pod, error) {
	node, err := s.lab.AddNode(name)
	if err != nil {
		return nil, nil, err
	}
	client, err := node.AddPod(name + "-client")
	if err != nil {
		return nil, nil, err
	}
	pods, err := node.AddPod(name + "-endpoints")
	if err != nil {
		return nil, nil, err
	}
	if err := node.Route(endpointRange, pods.IPv4()); err != nil {
		return nil, nil, err
	}
	if err := ownAll(pods, endpointRange); err != nil {
		return nil, nil, err
	}
	e, err := newEndpoints(pods.Host)
	if err != nil {
		return nil, nil, err
	}
	s.close = append(s.close, e.close)
	if s.pods == nil {
		s.pods = pods
	}
	return node, client, nil
}

// ownAll makes a whole range a pod's own (ip route add local RANGE dev lo).
func ownAll(p *topology.Pod, all netip.Prefix) error {
	h, err := p.NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback of %s: %w", p.Name, err)
	}
	err = h.RouteAdd(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		Dst: &net.IPNet{IP: all.Addr().AsSlice(), Mask: net.CIDRMask(all.Bits(), 32)},
	})
	if err != nil {
		return fmt.Errorf("give %s to %s: %w", all, p.Name, err)
	}
	return nil
}

// trackConnections has the node without agent track connections, as every node
// with a firewall does: what a VIP costs is to be compared with that.
func trackConnections(n *topology.Node) error {
	c, err := nftables.New(nftables.WithNetNSFd(n.NS.Fd()))
	if err != nil {
		return fmt.Errorf("open nf_tables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Name: "bench", Family: nftables.TableFamilyIPv4})
	chain := c.AddChain(&nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("track connections of node %s: %w", n.Name, err)
	}
	return nil
}

func (s *site) remove() error {
	var errs []error
	for _, c := range s.close {
		errs = append(errs, c())
	}
	return errors.Join(append(errs, s.lab.Remove(), s.release())...)
}

// dial connects to the API server from this process.
func (s *site) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return s.lab.Underlay().DialContext(ctx, network, address)
}
