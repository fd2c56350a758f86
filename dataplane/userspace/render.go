package userspace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// The kinds of objects.
const (
	kindRoute    = "route"
	kindListener = "listener"
	kindPool     = "pool"
)

// Render lists the routes, listeners and pools that a table makes, sorted by
// kind and name.
func Render(t *model.Table, _ kernel.Options) ([]kernel.Object, error) {
	return objects(routesFor(t), t, func(model.Key) bool { return true }), nil
}

// objects lists routes, and the listeners and pools of a table; of listeners
// those that are open.
func objects(routes routeSet, t *model.Table, open func(model.Key) bool) []kernel.Object {
	var list []kernel.Object
	for prefix, kind := range routes {
		list = append(list, kernel.Object{Kind: kindRoute, Name: prefix.String(), Text: kind.String()})
	}
	for f := range t.Frontends() {
		if listens(t, f) && open(f.Key) {
			list = append(list, kernel.Object{Kind: kindListener, Name: f.Key.String(), Text: listenerText(f)})
		}
	}
	for p := range t.Pools() {
		list = append(list, kernel.Object{Kind: kindPool, Name: p.ID.String(), Text: poolText(p)})
	}
	slices.SortFunc(list, func(a, b kernel.Object) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return list
}

func listenerText(f *model.Frontend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", f.Name, f.Entrance)
	for origin, r := range f.Routes {
		fmt.Fprintf(&b, " %s -> %s", model.Origin(origin), r.Pool)
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
	return b.String()
}

// listens reports whether a frontend needs a socket: if any packet to it is
// forwarded, or must not be answered. Where all are refused, the kernel does
// it, better than a process could.
func listens(t *model.Table, f *model.Frontend) bool {
	if f.Proto == model.SCTP {
		return false
	}
	for _, r := range f.Routes {
		p := t.Pool(r.Pool)
		if len(p.Backends) > 0 || p.Empty == model.Drop || f.Proto == model.UDP && len(p.Draining) > 0 {
			return true
		}
	}
	return false
}

// routeKind is the type of a route in the kernel's local table.
type routeKind uint8

const (
	routeLocal routeKind = iota // the address is this node's
	routeThrow                  // it is not, though a wider route says so
)

func (k routeKind) String() string { return [...]string{"local", "throw"}[k] }

// routeSet is what this plane has in the local table.
type routeSet map[netip.Prefix]routeKind

// routesFor are the routes that a table needs.
func routesFor(t *model.Table) routeSet {
	routes := routeSet{}
	for _, p := range t.Settings.Reserved {
		routes[p] = routeLocal
	}
	for _, a := range t.Settings.Exempt {
		routes[host(a)] = routeThrow
	}
	for f := range t.Frontends() {
		if needsRoute(t.Settings, f.Addr) {
			routes[host(f.Addr)] = routeLocal
		}
	}
	return routes
}

// needsRoute reports whether an address of a frontend is not local anyway.
func needsRoute(s *model.Settings, a netip.Addr) bool {
	_, own := slices.BinarySearchFunc(s.NodeAddrs, a, netip.Addr.Compare)
	return !own && !a.IsLoopback() && !slices.ContainsFunc(s.Reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
