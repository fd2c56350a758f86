package userspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// The kinds of objects.
const (
	kindRoute     = "route"
	kindRule      = "rule"
	kindNetfilter = "nftables"
	kindListener  = "listener"
	kindPool      = "pool"
)

// Render lists the routes, listeners and pools that a table makes, and what
// leads answers back to connections with their client's address, which is left
// out on machines that lack it. Sorted by kind and name.
func Render(t *model.Table, _ kernel.Options) ([]kernel.Object, error) {
	t = model.Expand(t)
	return objects(returnPathObjects(), routesFor(t), t, func(model.Key) bool { return true }), nil
}

// objects lists constant objects, routes, and the listeners and pools of a table; of listeners
// those that are open.
func objects(constant map[kernel.Object]bool, routes routeSet, t *model.Table, open func(model.Key) bool) []kernel.Object {
	list := slices.Collect(maps.Keys(constant))
	for prefix := range routes {
		list = append(list, kernel.Object{Kind: kindRoute, Name: prefix.String(), Text: "local"})
	}
	for f := range t.Frontends() {
		if listens(t, f) && open(f.Key) {
			list = append(list, kernel.Object{Kind: kindListener, Name: f.Key.String(), Text: listenerText(f)})
		}
	}
	for p := range t.Pools() {
		list = append(list, kernel.Object{Kind: kindPool, Name: p.ID.String(), Text: poolText(p)})
	}
	kernel.SortObjects(list)
	return list
}

func listenerText(f *model.Frontend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", f.Name, f.FrontendType)
	for origin, r := range f.Routes {
		fmt.Fprintf(&b, " %s -> %s", model.Origin(origin), r)
	}
	if f.Sources != nil {
		fmt.Fprintf(&b, " only from %v", f.Sources)
	}
	return b.String()
}

func poolText(p *model.Pool) string {
	var b strings.Builder
	for _, backend := range p.Backends {
		fmt.Fprintf(&b, "%s weight %d ", backend.AddrPort(), backend.Weight)
	}
	for _, backend := range p.Draining {
		fmt.Fprintf(&b, "%s draining ", backend.AddrPort())
	}
	if p.Affinity > 0 {
		fmt.Fprintf(&b, "affinity %s ", p.Affinity)
	}
	if p.Scheduler != model.DefaultScheduler {
		fmt.Fprintf(&b, "scheduler %s ", p.Scheduler)
	}
	switch p.Orphans {
	case model.OrphansReset:
		b.WriteString("orphans reset ")
	case model.OrphansDeadline:
		fmt.Fprintf(&b, "orphans %s ", p.OrphanDeadline)
	}
	return b.String()
}

// listens reports whether a frontend needs a socket: if any packet to it is
// forwarded, or must not be answered, which UDP can do: also if only some sources may ask. Where all are refused,
// the kernel does it, better than a process could.
func listens(t *model.Table, f *model.Frontend) bool {
	if f.Proto == model.SCTP {
		return false
	}
	for _, r := range f.Routes {
		p := t.Pool(r.Pool)
		if len(p.Backends) > 0 || f.Proto == model.UDP && (p.Empty == model.Drop || len(p.Draining) > 0 || f.Sources != nil) {
			return true
		}
	}
	return false
}

// routeSet is what this plane has in the kernel's local table: prefixes that
// are this node's own.
type routeSet map[netip.Prefix]struct{}

// routesFor are the routes that a table needs. Reserved ranges are cut around
// addresses that somebody else serves, since a "throw" route ends the lookup
// where the kernel keeps the local and the main table as one.
func routesFor(t *model.Table) routeSet {
	routes := routeSet{}
	for _, p := range t.Settings.Reserved {
		routes.addWithout(p, t.Settings.Exempt)
	}
	for f := range t.Frontends() {
		if needsRoute(t.Settings, f.Addr) {
			routes[host(f.Addr)] = struct{}{}
		}
	}
	return routes
}

// addIPv6 adds the IPv6 routes of another set.
func (s routeSet) addIPv6(others routeSet) {
	for p := range others {
		if p.Addr().Is6() {
			s[p] = struct{}{}
		}
	}
}

// addWithout adds what is left of p when addresses are cut out of it: for each
// of them at most one prefix per bit.
func (s routeSet) addWithout(p netip.Prefix, holes []netip.Addr) {
	switch {
	case !slices.ContainsFunc(holes, p.Contains):
		s[p] = struct{}{}
	case !p.IsSingleIP():
		lower := netip.PrefixFrom(p.Addr(), p.Bits()+1)
		s.addWithout(lower, holes)
		s.addWithout(netip.PrefixFrom(upperHalf(p), p.Bits()+1), holes)
	}
}

// upperHalf is the first address of a prefix's second half.
func upperHalf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, ok := netip.AddrFromSlice(bytes)
	if !ok {
		panic("an address of a prefix has no length of an address")
	}
	return a
}

// needsRoute reports whether an address of a frontend is not local anyway.
func needsRoute(s *model.Settings, a netip.Addr) bool {
	return !isNode(s, a) && !a.IsLoopback() && !slices.ContainsFunc(s.Reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// objects reads back what the kernel holds: see dataplane.Plane.Read.
func (p *Plane) objects(ctx context.Context) ([]kernel.Object, error) {
	routes, err := readRoutes()
	if err != nil {
		return nil, err
	}
	constant, err := readReturnPath()
	if err != nil {
		return nil, err
	}
	l, _, err := connect(ctx, p.socket)
	if notRunning(err) {
		return objects(constant, routes, model.NewTable(), func(model.Key) bool { return false }), nil
	}
	if err != nil {
		return nil, err
	}
	status, err := l.ask(ctx, request{Op: opStatus})
	if err := errors.Join(err, l.conn.Close()); err != nil {
		return nil, fmt.Errorf("ask relay: %w", err)
	}
	open := map[model.Key]bool{}
	for _, k := range status.Open {
		open[k] = true
	}
	table := status.Delta.Apply(model.NewTable())
	if ipv6IsOff() {
		routes.addIPv6(routesFor(table))
	}
	return objects(constant, routes, table, func(k model.Key) bool { return open[k] }), nil
}
