package planes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// Host is somebody who sends packets and answers them. Hosts and their
// addresses are the same in all cases.
type Host struct {
	Name  string
	Node  string     // the node it is or runs on; "" for the outside client
	Addr4 netip.Addr //
	Addr6 netip.Addr
	// In is the interface through which its packets reach the node under test;
	// "" for that node itself.
	In string
}

// NodeName is the node under test, on which the planes work.
const NodeName = "node"

const peerName = "peer"

// hostList is in the order in which the topology gives addresses to pods.
var hostList = []Host{
	host("a", NodeName, "10.244.1.2", "fd00:10:244:1::2", "pod2"),
	host("b", NodeName, "10.244.1.3", "fd00:10:244:1::3", "pod3"),
	host("c", peerName, "10.244.2.2", "fd00:10:244:2::2", "eth0"),
	host("d", peerName, "10.244.2.3", "fd00:10:244:2::3", "eth0"),
	host(NodeName, NodeName, "172.30.0.11", "fd00:172:30::b", ""),
	host(peerName, peerName, "172.30.0.12", "fd00:172:30::c", "eth0"),
	host("client", "", "172.30.100.1", "fd00:172:30::1:1", "eth0"),
}

func host(name, node, addr4, addr6, in string) Host {
	return Host{name, node, netip.MustParseAddr(addr4), netip.MustParseAddr(addr6), in}
}

var hosts = func() map[string]Host {
	m := map[string]Host{}
	for _, p := range hostList {
		m[p.Name] = p
	}
	return m
}()

// zones are those of the two nodes.
var zones = map[string]string{NodeName: "zone-1", peerName: "zone-2"}

// echoPorts are open at every host, in TCP, UDP and, where the kernel has it,
// SCTP.
var echoPorts = []uint16{8080, 8081, 9090}

// addr is the host's address of the same family as like.
func (p Host) addr(like netip.Addr) netip.Addr {
	if like.Is6() {
		return p.Addr6
	}
	return p.Addr4
}

// sourceFor is the address that the host's packets to dst have. A node reaches
// addresses of its own from these very addresses.
func (p Host) sourceFor(dst netip.Addr) netip.Addr {
	if dst.IsLoopback() {
		return dst
	}
	return p.addr(dst)
}

// packet is the first packet of a connection from the host, as the node under
// test sees it.
func (p Host) packet(proto model.Protocol, to netip.AddrPort) model.Packet {
	return model.Packet{Src: p.sourceFor(to.Addr()), Dst: to.Addr(), SrcPort: 40000, DstPort: to.Port(), Proto: proto, In: p.In}
}

// hostAt finds who has an address.
func hostAt(a netip.Addr) (Host, bool) {
	i := slices.IndexFunc(hostList, func(p Host) bool { return p.Addr4 == a || p.Addr6 == a })
	if i < 0 {
		return Host{}, false
	}
	return hostList[i], true
}

// backendName is how cases and answers name a backend: "a:8080".
func backendName(b model.Backend) string {
	p, ok := hostAt(b.Addr)
	if !ok {
		return b.AddrPort().String()
	}
	return answerName(p.Name, b.Port)
}

func answerName(host string, port uint16) string { return fmt.Sprintf("%s:%d", host, port) }

// Probe says who sends what where.
type Probe struct {
	From  Host
	Proto model.Protocol
	To    netip.AddrPort
	// FromPort is the client's port; 0 leaves the choice to its kernel.
	FromPort uint16
	// FromAddr is one of the client's addresses; the zero one leaves the choice to
	// its kernel.
	FromAddr netip.Addr
	// Least is the number of connections to make at least.
	Least int
}

// parseProbe reads "FROM[:PORT] PROTO DEST [x N]".
func parseProbe(args []string) (Probe, error) {
	name, port, fixed := strings.Cut(args[0], ":")
	from, known := hosts[name]
	if !known {
		return Probe{}, fmt.Errorf("host %q: must be one of %s", name, strings.Join(hostNames(), ", "))
	}
	p := Probe{From: from}
	var err error
	if fixed {
		if p.FromPort, err = parsePort(port); err != nil {
			return Probe{}, err
		}
	}
	if p.Proto, err = parseProtocol(args[1]); err != nil {
		return Probe{}, err
	}
	if p.To, err = parseDestination(args[2]); err != nil {
		return Probe{}, err
	}
	switch {
	case len(args) == 3:
	case len(args) == 5 && args[3] == "x":
		n, err := parsePort(args[4])
		if err != nil {
			return Probe{}, fmt.Errorf("number of connections %q: must be a number", args[4])
		}
		p.Least = int(n)
	default:
		return Probe{}, fmt.Errorf("%q: must be x NUMBER", strings.Join(args[3:], " "))
	}
	return p, nil
}

func hostNames() []string {
	var names []string
	for _, p := range hostList {
		names = append(names, p.Name)
	}
	return names
}

func parseProtocol(text string) (model.Protocol, error) {
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if p.String() == text {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q: must be tcp, udp or sctp", text)
}

// parseDestination reads "10.96.0.10:80", "[fd00:10:96::a]:80", or a host's
// name, with 6 behind it for its IPv6 address, or localhost: "node6:30080".
func parseDestination(text string) (netip.AddrPort, error) {
	host, portText, ok := strings.Cut(text, ":")
	if !ok || strings.HasPrefix(text, "[") || strings.Count(host, ".") == 3 {
		to, err := netip.ParseAddrPort(text)
		if err != nil {
			return to, fmt.Errorf("destination %q: must be ADDRESS:PORT or PARTY:PORT", text)
		}
		if to.Addr().Zone() != "" || to.Addr().Is4In6() || to.Port() == 0 {
			return to, fmt.Errorf("destination %q: must be a plain address and a port", text)
		}
		return to, nil
	}
	addr, err := partyAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("destination %q: %w", text, err)
	}
	port, err := parsePort(portText)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("destination %q: %w", text, err)
	}
	return netip.AddrPortFrom(addr, port), nil
}

// partyAddr is the address of "a", "a6", "localhost" or "localhost6".
func partyAddr(name string) (netip.Addr, error) {
	base, v6 := strings.CutSuffix(name, "6")
	like := netip.IPv4Unspecified()
	if v6 {
		like = netip.IPv6Unspecified()
	}
	if base == "localhost" {
		return map[bool]netip.Addr{false: netip.AddrFrom4([4]byte{127, 0, 0, 1}), true: netip.IPv6Loopback()}[v6], nil
	}
	p, known := hosts[base]
	if !known {
		return netip.Addr{}, fmt.Errorf("host %q: must be one of %s, localhost, with 6 behind it for IPv6", name, strings.Join(hostNames(), ", "))
	}
	return p.addr(like), nil
}
