package allocator

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Family is an IP family.
type Family int

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Port is a port of a Service: what two Services on one address must differ in.
type Port struct {
	Protocol string // "TCP"
	Number   uint16
}

func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Request is what the allocator has to know of a Service.
type Request struct {
	Service         types.NamespacedName
	Labels          labels.Set
	NamespaceLabels labels.Set
	// Families to have an address of, one or two, the more important first.
	Families []Family
	// Prefer takes one of the two families where no pool has both
	// (ipFamilyPolicy PreferDualStack).
	Prefer bool
	// Addresses asked for; none: any.
	Addresses []netip.Addr
	// Pool asked for; "": any.
	Pool string
	// SharingKey, if not "", allows addresses to be shared with Services that
	// have the same one, other ports and the same Backends.
	SharingKey string
	Ports      []Port
	// Backends is "" where the traffic may go to any node
	// (externalTrafficPolicy: Cluster); otherwise it names the Pods: traffic
	// for an address comes to one node, which must have endpoints of all
	// Services that share it.
	Backends string
}

// Assignment is the addresses of a Service, all of one pool, in the order of the
// Service's families.
type Assignment struct {
	Pool      string
	Addresses []netip.Addr
}

// fits returns why the Service can't have these addresses as far as families
// go; nil if it can.
func (r *Request) fits(addresses []netip.Addr) error {
	var have []Family
	for _, a := range addresses {
		f := familyOf(a)
		if slices.Contains(have, f) {
			return fmt.Errorf("more than one %s address: %v", f, addresses)
		}
		if !slices.Contains(r.Families, f) {
			return fmt.Errorf("address %s is of the family %s, the Service has %v", a, f, r.Families)
		}
		have = append(have, f)
	}
	if len(have) < len(r.Families) && !r.Prefer {
		return fmt.Errorf("addresses %v are not of all of the Service's families %v", addresses, r.Families)
	}
	return nil
}

// inOrder returns the addresses in the order of the Service's families.
func (r *Request) inOrder(addresses []netip.Addr) []netip.Addr {
	var ordered []netip.Addr
	for _, f := range r.Families {
		for _, a := range addresses {
			if familyOf(a) == f {
				ordered = append(ordered, a)
			}
		}
	}
	return ordered
}
