//go:build kernels

package planes

import (
	"testing"

	"github.com/fairway-net/fairway/test/vm"
)

// kernels are those of Debian's releases, by the names of tests: 5.10 (no tcx, no
// SO_NETNS_COOKIE), 6.1 (no tcx), 6.12, and the newest that backports have.
var kernels = map[string]string{
	"bullseye": "bullseye", "bookworm": "bookworm", "trixie": "trixie", "backports": "trixie-backports",
}

// kernelPlanes are those that are held against all kernels. Userspace asks little of
// one, and TestPlanes plays ipvs in the machine.
var kernelPlanes = []string{"nftables", "iptables", "ebpf"}

// kernelCases are enough to see each part of these planes at work; all are played on a
// kernel with FAIRWAY_VM=1, see docs/explanation/ebpf.md.
var kernelCases = []string{
	"clusterip", "clusterip-ipv6", "clusterip-udp", "nodeport", "nodeport-udp", "noendpoints", "externalips", "external-local",
	"loadbalancer", "affinity", "hairpin", "restart", "rolling", "udp-moves", "direct-return", "stable-flows", "orphans",
}

// TestKernels plays cases on other kernels:
//
//	go test -tags kernels ./test/conformance/planes -run TestKernels/bullseye/ebpf
func TestKernels(t *testing.T) {
	t.Parallel()
	for name, release := range kernels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, plane := range kernelPlanes {
				t.Run(plane, func(t *testing.T) {
					t.Parallel()
					vm.On(t, release, func(t *testing.T) { playOnKernel(t, plane) })
				})
			}
		})
	}
}

func playOnKernel(t *testing.T, plane string) {
	th := newTheatre(t, "")
	for _, name := range kernelCases {
		for _, c := range cases(t, "testdata/cases/"+name+".txtar") {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				play(t, th, plane, c)
			})
		}
	}
}
