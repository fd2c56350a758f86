package iptables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/pathbench"
)

// BenchmarkNewConnection is the first packet of a connection on its way through
// this node, from a pod to a backend elsewhere: to Services in no order, and to
// the backends directly.
func BenchmarkNewConnection(b *testing.B) {
	for _, services := range []int{10, 10000} {
		table := cluster(services, 5)
		var vips, backends []netip.AddrPort
		for f := range table.Frontends() {
			if f.FrontendType == model.ClusterIP {
				vips = append(vips, netip.AddrPortFrom(f.Addr, f.Port))
			}
		}
		for p := range table.Pools() {
			for _, e := range p.Backends {
				backends = append(backends, e.AddrPort())
			}
		}
		for _, v := range iptables.Variants() {
			for way, to := range map[string][]netip.AddrPort{"VIP": vips, "direct": backends, "no plane": backends} {
				b.Run(fmt.Sprintf("%s/%dx5/%s", v, services, way), func(b *testing.B) {
					inNamespace(b)
					c := pathbench.New(b)
					if way == "no plane" {
						run(b, "iptables-"+string(v), "-A", "FORWARD", "-m", "conntrack", "--ctstate", "NEW", "-j", "ACCEPT")
					} else {
						apply(b, newPlane(b, kernel.Options{IPTablesVariant: string(v), StateDir: b.TempDir()}), table, false)
					}
					c.Measure(b, func(n int) netip.AddrPort { return to[pathbench.Scattered(n, len(to))] })
				})
			}
		}
	}
}
