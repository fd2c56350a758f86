package check

import (
	"fmt"
	"net/netip"
)

// refused are ranges that lead to the asking machine itself, to its link or to
// nobody in particular: an endpoint there is another machine on every node, and
// may be a service that trusts whoever reaches it (the metadata service of
// clouds at 169.254.169.254, say).
var refused = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/127"), // :: and ::1
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fec0::/10"),
	netip.MustParsePrefix("ff00::/8"),
	netip.MustParsePrefix("fd00:ec2::254/128"), // the metadata service of a cloud
}

// embedding are IPv6 ranges whose addresses end in an IPv4 address that packets
// may be translated to (RFC 4291 compatible and mapped, RFC 6052).
var embedding = []netip.Prefix{
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0/96"),
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), // RFC 8215; of its forms, the one that is used
}

// sixToFour is the range whose addresses have an IPv4 address behind their first
// two bytes (RFC 3056).
var sixToFour = netip.MustParsePrefix("2002::/16")

// Allowed returns an error if an address must not be asked on behalf of whoever
// wrote a Service or EndpointSlice: who may write these must not thereby reach
// what only the machine itself, or its link, may reach.
func Allowed(a netip.Addr) error {
	if !a.IsValid() || a.Zone() != "" {
		return fmt.Errorf("address %s: not a plain IP address", a)
	}
	if sixToFour.Contains(a) {
		b := a.As16()
		return Allowed(netip.AddrFrom4([4]byte(b[2:6])))
	}
	if a.Is6() {
		for _, p := range embedding {
			if p.Contains(a) && a != netip.IPv6Unspecified() && a != netip.IPv6Loopback() {
				b := a.As16()
				return Allowed(netip.AddrFrom4([4]byte(b[12:])))
			}
		}
	}
	for _, p := range refused {
		if p.Contains(a) {
			return fmt.Errorf("address %s: loopback, link-local and group addresses are not checked", a)
		}
	}
	return nil
}
