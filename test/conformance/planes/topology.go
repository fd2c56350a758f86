package planes

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/internal/ethtool"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/lab/echo"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

// Topology is the network in which cases play: two nodes with two pods each and a
// client outside, every one of them a network namespace that answers on
// echoPorts.
type Topology struct {
	// SCTP says whether the kernel has it.
	SCTP bool
	// Variant is that of the iptables commands that planes and cases use; ""
	// leaves it to them.
	Variant iptables.Variant

	site    *Site // what was changed of it; nil if nothing was
	uplinks map[string]uplink
	closers []func() error
	lab     *topology.Lab
	node    *topology.Node
	peer    *topology.Node
	hosts   map[string]*topology.Host
	servers []*echo.Server
	before  snapshot          // of the node, without a plane
	cgroup  string            // the node's; "" where there is no cgroup v2
	sockets *cgroupsock.Maker // makes the sockets of the node and its pods; nil without cgroup
}

var topologies atomic.Int64

// servedRanges are those in which Services have addresses in cases. Whoever is
// outside the node reaches them through it.
var servedRanges = []string{"10.96.0.0/16", "203.0.113.0/24", "fd00:10:96::/112", "2001:db8::/32"}

// NewTopology builds a topology, and removes those of processes that were killed.
func NewTopology() (*Topology, error) {
	if err := removeDeadTopologies(); err != nil {
		return nil, err
	}
	lab, err := topology.New(topologyName(topologies.Add(1)), topology.Options{})
	if err != nil {
		return nil, err
	}
	s := &Topology{SCTP: true, lab: lab, hosts: map[string]*topology.Host{"client": lab.Client()}}
	if err := s.build(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Topology) build() error {
	for _, name := range []string{NodeName, peerName} {
		n, err := s.lab.AddNode(name)
		if err != nil {
			return err
		}
		s.hosts[name] = n.Host
		if name == NodeName {
			s.node = n
		} else {
			s.peer = n
		}
		for _, p := range hostList {
			if p.Node != name || p.Name == name {
				continue
			}
			pod, err := n.AddPod(p.Name)
			if err != nil {
				return err
			}
			s.hosts[p.Name] = pod.Host
		}
	}
	for _, p := range hostList {
		if err := s.hosts[p.Name].Do(setSysctls); err != nil {
			return fmt.Errorf("set sysctls of %s: %w", p.Name, err)
		}
		if h := s.hosts[p.Name]; h.IPv4() != p.Addr4 || h.IPv6() != p.Addr6 {
			return fmt.Errorf("%s has the addresses %v, expected %v and %v", p.Name, h.Addresses, p.Addr4, p.Addr6)
		}
		if err := s.listen(p); err != nil {
			return err
		}
	}
	if os.Getenv(XDPEnv) != "" {
		if err := s.likeHardware(); err != nil {
			return err
		}
	}
	if err := s.useCgroup(); err != nil {
		return err
	}
	if err := s.route(); err != nil {
		return err
	}
	return s.awaitAddress()
}

// likeHardware has links behave as network cards do, as far as programs in drivers see it:
// frames carry whole checksums, and the other ends of the nodes' links take what their drivers
// send.
func (s *Topology) likeHardware() error {
	for name, h := range s.hosts {
		if err := h.Do(func() error { return ethtool.SetTxChecksums(topology.NodeInterface, false) }); err != nil {
			return fmt.Errorf("switch off checksums of %s: %w", name, err)
		}
	}
	for _, name := range []string{NodeName, peerName} {
		if err := s.lab.Underlay().Do(func() error { return ethtool.SetGRO(name, true) }); err != nil {
			return fmt.Errorf("switch on GRO for %s: %w", name, err)
		}
	}
	return nil
}

// awaitAddress waits until the node's IPv6 address is there for good: the kernel adds
// its route a while after the address, when the link is up.
func (s *Topology) awaitAddress() error {
	h, err := s.node.NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(5 * time.Millisecond) {
		routes, err := h.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // a part of them, as they change
			return fmt.Errorf("list routes of the node: %w", err)
		}
		own := hosts[NodeName].Addr6.AsSlice()
		if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Type == unix.RTN_LOCAL && r.Dst != nil && r.Dst.IP.Equal(own) }) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the node's address %s is not there", hosts[NodeName].Addr6)
		}
	}
}

// Start starts a plane's process on the node.
func (s *Topology) Start(kind, stateDir string) (*Process, error) {
	return StartProcess(kind, stateDir, s.Variant, s.node.NS, s.cgroup)
}

// StartPeer starts a plane's process on peer.
func (s *Topology) StartPeer(kind, stateDir string) (*Process, error) {
	cgroup := ""
	if s.cgroup != "" {
		var err error
		if cgroup, err = s.peer.Cgroup(); err != nil {
			return nil, err
		}
	}
	return StartProcess(kind, stateDir, s.Variant, s.peer.NS, cgroup)
}

// Close removes the topology.
func (s *Topology) Close() error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	s.servers = nil
	if s.sockets != nil {
		errs = append(errs, s.sockets.Close())
		s.sockets = nil
	}
	for _, done := range s.closers {
		errs = append(errs, done())
	}
	s.closers = nil
	return errors.Join(append(errs, s.lab.Remove())...)
}

// withoutPlane is what a packet meets at its own destination if no plane
// touches it: who answers, and whether anybody refuses.
func (s *Topology) withoutPlane(p Probe) *Expectation {
	to, ok := hostAt(p.To.Addr())
	if p.To.Addr().IsLoopback() {
		to, ok = p.From, true
	}
	if !ok {
		return &Expectation{Outcome: Silent}
	}
	for _, port := range echoPorts {
		if port == p.To.Port() && (p.Proto != model.SCTP || s.SCTP) {
			return &Expectation{Outcome: Forwarded, Reach: All, Backends: []string{answerName(to.Name, port)}, Source: Kept}
		}
	}
	return &Expectation{Outcome: Refused}
}
