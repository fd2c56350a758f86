package apiserver

import (
	"fmt"
	"net"
	"net/netip"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// advertised is the address under which others find the server.
func (c *Config) advertised() (netip.Addr, error) {
	if c.AdvertiseAddress.IsValid() {
		return c.AdvertiseAddress, nil
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
