package nftables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/pathbench"
)

// BenchmarkNewConnection is the first packet of a connection on its way through
// this node, from a pod to a backend elsewhere: to Services in no order, and to
// the backends directly. Rules of kube-proxy's shape, in the same run, tell how
// much that is. What it costs is the processor time of sending it,
// since all of the path belongs to that; that of rounds is sorted for a median.
func BenchmarkNewConnection(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		for _, way := range []string{"VIP", "VIP, kube-proxy's rules", "VIP, bytes counted", "direct", "direct, bytes counted", "no plane"} {
			b.Run(fmt.Sprintf("%dx5/%s", services, way), func(b *testing.B) {
				inNamespace(b)
				c := pathbench.New(b)
				switch way {
				case "VIP, kube-proxy's rules":
					loadKubeProxyShape(b, synthetic(services, 5))
				case "no plane":
					nft(b, "add table ip bench; add chain ip bench forward { type filter hook forward priority 0; ct state new accept; }")
				default:
					apply(b, newPlane(b, kernel.Options{CountBytes: strings.HasSuffix(way, "counted")}), synthetic(services, 5), false)
				}
				c.Measure(b, func(n int) netip.AddrPort {
					i := pathbench.Scattered(n, services)
					if strings.HasPrefix(way, "VIP") {
						return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80)
					}
					i = i*5 + n%5
					return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(128 + i>>16), byte(i >> 8), byte(i)}), 8080)
				})
			})
		}
	}
}
