package apiserver

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// advertised is the address under which others find the server.
func (c *Config) advertised() (netip.Addr, error) {
	if a := c.AdvertiseAddress; a.IsValid() {
		if a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() {
			return a, fmt.Errorf("advertise address %s: other machines can't reach it; give one of this machine's other addresses", a)
		}
		return a, nil
	}
	if !c.BindAddress.IsUnspecified() {
		return c.BindAddress, nil
	}
	ip, err := utilnet.ResolveBindAddress(net.IP(c.BindAddress.AsSlice()))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("choose advertise address: %w", err)
	}
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.Addr{}, fmt.Errorf("choose advertise address: %v is no address", ip)
	}
	return addr.Unmap(), nil
}

// reachable is the address for clients on this machine.
func (c *Config) reachable() netip.Addr {
	if !c.BindAddress.IsUnspecified() {
		return c.BindAddress
	}
	return c.AdvertiseAddress
}

// interfaceAddresses are this machine's own; if they can't be read, the
// certificate has fewer names, which the client will tell.
func interfaceAddresses() []netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok && !addr.IsLinkLocalUnicast() {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out
}

// subjectNames are the names by which clients may know the server.
func (c *Config) subjectNames(serviceIP netip.Addr) (ips []net.IP, names []string) {
	names = []string{genericapiserver.LoopbackClientServerNameOverride, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	addresses := []netip.Addr{serviceIP, netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), c.AdvertiseAddress, c.BindAddress}
	for _, san := range c.ExtraSANs {
		if addr, err := netip.ParseAddr(san); err == nil {
			addresses = append(addresses, addr)
		} else {
			names = append(names, san)
		}
	}
	if c.BindAddress.IsUnspecified() {
		addresses = append(addresses, interfaceAddresses()...)
	}
	for _, addr := range sets.New(addresses...).UnsortedList() {
		ips = append(ips, net.IP(addr.AsSlice()))
	}
	return ips, names
}
