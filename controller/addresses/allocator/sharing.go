package allocator

import (
	"fmt"
	"net/netip"
	"slices"
)

// maySit returns why the Service can't have the address beside those that have
// it; nil if it can.
func (a *Allocator) maySit(r *Request, address netip.Addr) error {
	for _, u := range a.users[address] {
		other := u.request
		switch {
		case r.SharingKey == "" || other.SharingKey == "":
			return fmt.Errorf("%s is the address of Service %s", address, other.Service)
		case r.SharingKey != other.SharingKey:
			return fmt.Errorf("%s is the address of Service %s, whose sharing key is %q and not %q", address, other.Service, other.SharingKey, r.SharingKey)
		case r.Backends != other.Backends:
			return fmt.Errorf("%s can't be shared with Service %s: with externalTrafficPolicy: Local both must have it, and the same selector", address, other.Service)
		}
		for _, p := range r.Ports {
			if slices.Contains(other.Ports, p) {
				return fmt.Errorf("%s can't be shared with Service %s: both have port %s", address, other.Service, p)
			}
		}
	}
	return nil
}

// shared returns the lowest address of the pool and family that the Service can
// share with others.
func (a *Allocator) shared(r *Request, p *Pool, f Family) (lowest netip.Addr, ok bool) {
	if r.SharingKey == "" {
		return netip.Addr{}, false
	}
	for address := range a.users {
		if familyOf(address) == f && p.contains(address) && a.maySit(r, address) == nil && (!ok || address.Less(lowest)) {
			lowest, ok = address, true
		}
	}
	return lowest, ok
}
