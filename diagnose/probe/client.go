package probe

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/internal/netns"
)

// ConnectFrom is Connect from the network namespace of this machine that has an
// address: of a pod, or of a lab's host. It is "" if none has, or it can't be
// entered.
func (p Prober) ConnectFrom(ctx context.Context, from netip.Addr, to netip.AddrPort) string {
	at, err := p.at(from)
	if err != nil {
		return ""
	}
	result := at.Connect(ctx, to)
	if err := at.NS.Close(); err != nil {
		return ""
	}
	return result
}

// at is the prober of the network namespace of this machine that has an address: of a pod, or of
// a lab's host. The error is doctor.ErrNotThere if none has, or it can't be entered. The caller
// closes the namespace.
func (p Prober) at(a netip.Addr) (Prober, error) {
	ns := p.near(a)
	if ns == nil {
		return Prober{}, doctor.ErrNotThere
	}
	if p.NS != nil && !leadsTo(ns, p.NS) {
		_ = ns.Close() // another node's, or another lab's with the same addresses: nothing was done in it
		return Prober{}, doctor.ErrNotThere
	}
	return Prober{NS: ns}, nil
}

// near is the namespace that has an address, of several that of a pod of the prober's
// node.
func (p Prober) near(a netip.Addr) *netns.NS {
	if p.NS != nil {
		return NamespaceNear(a, p.NS)
	}
	node, err := netns.Current()
	if err != nil {
		return nil
	}
	defer node.Close() //nolint:errcheck // nothing was done in it
	return NamespaceNear(a, node)
}

// NamespaceNear opens the network namespace that has an address: one of a process, or
// one with a name. Of several (labs side by side use the same addresses) it prefers one
// that has an interface to a node's namespace. It is nil if there is none that may be
// looked into. The caller closes it.
func NamespaceNear(a netip.Addr, node *netns.NS) (found *netns.NS) {
	take := func(ns *netns.NS, err error) (done bool) {
		if err != nil {
			return false // it went meanwhile, or isn't ours to look into
		}
		near := node == nil || leadsTo(ns, node)
		if found != nil && !near {
			_ = ns.Close() // nothing was done in it
			return false
		}
		if found != nil {
			_ = found.Close() // likewise
		}
		found = ns
		return near
	}
	for _, dir := range namespaces("/proc") {
		if hasAddress(dir, a) && take(netns.OfPath(filepath.Join(filepath.Dir(dir), "ns", "net"))) {
			return found
		}
	}
	names, err := netns.Names("")
	if err != nil {
		return found
	}
	for _, name := range names {
		ns, err := netns.Open(name)
		if err != nil {
			continue
		}
		there := false
		if err := ns.Do(func() error {
			there = has(a)
			return nil
		}); err == nil && there {
			if take(ns, nil) {
				return found
			}
		} else if err := ns.Close(); err != nil {
			return found
		}
	}
	return found
}

// leadsTo reports whether a namespace is another, or has an interface whose other end is
// there. That the kernel has a number for the other one isn't enough: it keeps numbers of
// namespaces where an interface's other end has been once.
func leadsTo(ns, other *netns.NS) bool {
	if ns.ID() == other.ID() {
		return true
	}
	leads := false
	err := ns.Do(func() error {
		id, err := netlink.GetNetNsIdByFd(other.Fd())
		if err != nil || id < 0 {
			return err
		}
		links, err := netlink.LinkList()
		leads = slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().NetNsID == id })
		return err
	})
	return err == nil && leads
}

// has reports whether an interface of the calling thread's namespace has an address.
func has(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, one := range list {
		if p, err := netip.ParsePrefix(one.String()); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// Resolvers reads the resolv.conf files of the processes in the network namespace
// that has an address, as each sees its own.
func (p Prober) Resolvers(of netip.Addr) []doctor.Resolver {
	ns := p.near(of)
	if ns == nil {
		return nil
	}
	defer ns.Close() //nolint:errcheck // nothing was done in it
	inode := inodeOf(ns)
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil || inode == "" {
		return nil
	}
	var list []doctor.Resolver
	seen := map[string]bool{}
	for _, link := range links {
		if ns, err := os.Readlink(link); err != nil || ns != inode {
			continue
		}
		text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(link)), "root", "etc", "resolv.conf"))
		if err == nil && !seen[string(text)] {
			seen[string(text)] = true
			list = append(list, parseResolver(text))
		}
	}
	return list
}

// parseResolver reads a resolv.conf; the last search line counts (resolv.conf(5)).
func parseResolver(text []byte) doctor.Resolver {
	var r doctor.Resolver
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			r.Servers = append(r.Servers, words[1])
		case "search", "domain":
			r.Search = words[1:]
			for i := range r.Search {
				r.Search[i] = strings.TrimSuffix(r.Search[i], ".")
			}
		}
	}
	return r
}
