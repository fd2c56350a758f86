package topology

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	firstPod = 2   // 10.244.1.2
	lastPod  = 254 // 10.244.1.254

	// PodsPerNode is how many pods have addresses on a node.
	PodsPerNode = lastPod - firstPod + 1
)

// The node's end of every pod link has the same link-layer address and the same
// link-local gateway addresses, so that a pod's view doesn't depend on its node.
var (
	gatewayMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	gateway4   = netip.MustParseAddr("169.254.1.1")
	gateway6   = netip.MustParseAddr("fe80::1")
)

// Pod is a host behind a node.
type Pod struct {
	*Host
	Node *Node
	// Interface is the node's end of the pod's link.
	Interface string

	number int
}

// AddPod adds a pod to the node: a namespace with the next free address of the
// node's ranges. Addresses are used in turn, so that a removed pod's isn't
// another's at once.
func (n *Node) AddPod(name string) (*Pod, error) {
	n.podsMu.Lock()
	defer n.podsMu.Unlock()
	if _, ok := n.pods[name]; ok {
		return nil, fmt.Errorf("add pod %s to %s: it exists already", name, n.Name)
	}
	number, err := n.freeNumber()
	if err != nil {
		return nil, fmt.Errorf("add pod %s to %s: %w", name, n.Name, err)
	}
	host, err := openHost(name, PodNamespace(n.lab.name, name),
		[]netip.Addr{nth(n.PodCIDRs[0], number), nth(n.PodCIDRs[1], number)})
	if err != nil {
		return nil, fmt.Errorf("add pod %s to %s: %w", name, n.Name, err)
	}
	p := &Pod{Host: host, Node: n, Interface: PodInterfacePrefix + strconv.Itoa(number), number: number}
	if err := p.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("add pod %s to %s: %w", name, n.Name, err), p.remove())
	}
	n.pods[name] = p
	n.taken[number], n.last = true, number
	return p, nil
}

func (n *Node) freeNumber() (int, error) {
	for range PodsPerNode {
		n.last++
		if n.last > lastPod {
			n.last = firstPod
		}
		if !n.taken[n.last] {
			return n.last, nil
		}
	}
	return 0, fmt.Errorf("no address left in %v", n.PodCIDRs[0])
}

// Remove takes the pod away. Processes inside it keep its namespace, without
// the link, until they end.
func (p *Pod) Remove() error {
	p.Node.podsMu.Lock()
	defer p.Node.podsMu.Unlock()
	if p.Node.pods[p.Name] != p {
		return nil
	}
	var errs []error
	if link, err := p.Node.netlink.LinkByName(p.Interface); err != nil {
		errs = append(errs, fmt.Errorf("remove pod %s: find link %s: %w", p.Name, p.Interface, err))
	} else if err := p.Node.netlink.LinkDel(link); err != nil {
		errs = append(errs, fmt.Errorf("remove pod %s: delete link %s: %w", p.Name, p.Interface, err))
	}
	errs = append(errs, p.remove())
	delete(p.Node.pods, p.Name)
	delete(p.Node.taken, p.number)
	return errors.Join(errs...)
}

// connect links the pod to its node, with the addresses, routes and neighbours
// of both ends.
func (p *Pod) connect() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = p.Interface, gatewayMAC
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = NodeInterface, netlink.NsFd(p.NS.Fd())
	if err := p.Node.netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link %s: %w", p.Interface, err)
	}
	if err := p.up(NodeInterface); err != nil {
		return err
	}
	if err := p.Node.up(p.Interface); err != nil {
		return err
	}
	if err := p.Node.address(p.Interface, netip.PrefixFrom(gateway6, 64)); err != nil {
		return err
	}
	inside, err := p.netlink.LinkByName(NodeInterface)
	if err != nil {
		return fmt.Errorf("find link of the pod: %w", err)
	}
	outside, err := p.Node.netlink.LinkByName(p.Interface)
	if err != nil {
		return fmt.Errorf("find link %s: %w", p.Interface, err)
	}
	for i, gateway := range []netip.Addr{gateway4, gateway6} {
		if err := p.connectFamily(p.Addresses[i], gateway, inside.Attrs(), outside.Attrs()); err != nil {
			return err
		}
	}
	return nil
}

// connectFamily sets up one IP family: on the pod its address and a default
// route, on the node a route to the pod, and on both permanent neighbours.
func (p *Pod) connectFamily(address, gateway netip.Addr, inside, outside *netlink.LinkAttrs) error {
	own := netip.PrefixFrom(address, address.BitLen())
	if err := p.address(NodeInterface, own); err != nil {
		return err
	}
	if err := p.netlink.NeighSet(permanent(inside.Index, gateway, gatewayMAC)); err != nil {
		return fmt.Errorf("set neighbour %v of the pod: %w", gateway, err)
	}
	all := netip.PrefixFrom(address, 0).Masked()
	err := p.netlink.RouteAdd(&netlink.Route{
		LinkIndex: inside.Index, Dst: ipNet(all), Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	})
	if err != nil {
		return fmt.Errorf("add default route of the pod via %v: %w", gateway, err)
	}
	if err := p.Node.netlink.NeighSet(permanent(outside.Index, address, inside.HardwareAddr)); err != nil {
		return fmt.Errorf("set neighbour %v on %s: %w", address, p.Node.Name, err)
	}
	err = p.Node.netlink.RouteReplace(&netlink.Route{LinkIndex: outside.Index, Dst: ipNet(own), Scope: netlink.SCOPE_LINK})
	if err != nil {
		return fmt.Errorf("add route to %v on %s: %w", own, p.Node.Name, err)
	}
	return nil
}

func permanent(link int, address netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	n := &netlink.Neigh{
		LinkIndex: link, State: netlink.NUD_PERMANENT, IP: address.AsSlice(), HardwareAddr: mac, Family: unix.AF_INET,
	}
	if address.Is6() {
		n.Family = unix.AF_INET6
	}
	return n
}
