package allocator

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Range is a range of addresses beside those of the server's configuration.
type Range struct {
	Prefix netip.Prefix
	// Closed says that none of its addresses is given out any more.
	Closed bool
}

// SetRanges replaces the ranges beside the server's own. It returns when what is
// taken in the new ones is known, or ctx is done; until then nothing is given out
// of them. Start must have been called.
func (a *Allocator) SetRanges(ctx context.Context, ranges []Range) {
	fresh := a.replace(ranges)
	if len(fresh) == 0 {
		return
	}
	known := make(chan struct{})
	select {
	case a.relist <- known:
	case <-a.done:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-known:
	case <-a.done:
		return
	case <-ctx.Done():
		return
	}
	for _, r := range fresh {
		r.open.Store(true)
	}
}

// replace makes the ranges the ones wanted, and returns those that shall be open
// but don't know yet what is taken in them.
func (a *Allocator) replace(wanted []Range) (fresh []*addresses) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.ranges
	after := slices.DeleteFunc(slices.Clone(before), func(r *addresses) bool { return !r.own })
	for _, w := range wanted {
		if slices.ContainsFunc(after, func(r *addresses) bool { return r.prefix == w.Prefix.Masked() }) {
			continue
		}
		i := slices.IndexFunc(before, func(r *addresses) bool { return r.prefix == w.Prefix.Masked() })
		if i >= 0 && (w.Closed || before[i].open.Load()) {
			before[i].open.Store(!w.Closed)
			after = append(after, before[i])
			continue
		}
		r, err := newAddresses(w.Prefix)
		if err != nil { // validation has refused these
			slog.Warn("a range is not used", "error", err)
			continue
		}
		for _, addr := range a.ownedIn(r) {
			n, _ := r.number(addr)
			r.reserve(n)
		}
		after = append(after, r)
		if !w.Closed {
			fresh = append(fresh, r)
		}
	}
	a.ranges = after
	return fresh
}

// ownedIn returns the addresses of a range that are kept for a Service.
func (a *Allocator) ownedIn(r *addresses) []netip.Addr {
	var list []netip.Addr
	for addr := range a.owners {
		if _, ok := r.number(addr); ok {
			list = append(list, addr)
		}
	}
	return list
}

// all returns the ranges. They are not changed, but replaced.
func (a *Allocator) all() []*addresses {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.ranges
}

// Families returns the IP families of the ranges, the cluster's default first.
func (a *Allocator) Families() []corev1.IPFamily {
	families := slices.Clone(a.families)
	for _, r := range a.all() {
		if !slices.Contains(families, r.family()) {
			families = append(families, r.family())
		}
	}
	return families
}

// Prefixes returns all ranges, those from which nothing is given out any more too.
func (a *Allocator) Prefixes() []netip.Prefix {
	var list []netip.Prefix
	for _, r := range a.all() {
		list = append(list, r.prefix)
	}
	return list
}

// rangesOf returns the ranges of a family.
func (a *Allocator) rangesOf(family corev1.IPFamily) []*addresses {
	var list []*addresses
	for _, r := range a.all() {
		if r.family() == family {
			list = append(list, r)
		}
	}
	return list
}

// containing returns the ranges in which an address has a number.
func (a *Allocator) containing(addr netip.Addr) []*addresses {
	var list []*addresses
	for _, r := range a.all() {
		if _, ok := r.number(addr); ok {
			list = append(list, r)
		}
	}
	return list
}

func isOpen(ranges []*addresses) bool {
	return slices.ContainsFunc(ranges, func(r *addresses) bool { return r.open.Load() })
}

// openOnes names the ranges from which addresses are given out.
func openOnes(ranges []*addresses) string {
	var names []string
	for _, r := range ranges {
		if r.open.Load() {
			names = append(names, r.prefix.String())
		}
	}
	return strings.Join(names, ", ")
}
