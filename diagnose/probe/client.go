package probe

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/internal/netns"
)

// ConnectFrom is Connect from the network namespace of this machine that has an
// address: of a pod, or of a lab's host. It is "" if none has, or it can't be
// entered.
func (Prober) ConnectFrom(ctx context.Context, from netip.Addr, to netip.AddrPort) string {
	ns := NamespaceOf(from)
	if ns == nil {
		return ""
	}
	result := Prober{NS: ns}.Connect(ctx, to)
	if err := ns.Close(); err != nil {
		return ""
	}
	return result
}

// NamespaceOf opens the network namespace that has an address: one of a process, or
// one with a name. It is nil if there is none that may be looked into. The caller
// closes it.
func NamespaceOf(a netip.Addr) *netns.NS {
	for _, dir := range namespaces("/proc") {
		if hasAddress(dir, a) {
			if ns, err := netns.OfPath(filepath.Join(filepath.Dir(dir), "ns", "net")); err == nil {
				return ns
			}
		}
	}
	names, err := netns.Names("")
	if err != nil {
		return nil
	}
	for _, name := range names {
		ns, err := netns.Open(name)
		if err != nil {
			continue
		}
		found := false
		if err := ns.Do(func() error {
			found = has(a)
			return nil
		}); err == nil && found {
			return ns
		}
		if err := ns.Close(); err != nil {
			return nil
		}
	}
	return nil
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
func Resolvers(of netip.Addr) []doctor.Resolver {
	inode := ""
	for _, dir := range namespaces("/proc") {
		if hasAddress(dir, of) {
			inode, _ = os.Readlink(filepath.Join(filepath.Dir(dir), "ns", "net")) // that just went: nothing is found
		}
	}
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
