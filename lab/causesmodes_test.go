//go:build causes

package lab_test

import (
	"testing"

	"github.com/fairway-net/fairway/test/vm"
)

// TestCausesInAllModes is TestCauses in every mode, with what is provoked on the nodes.
func TestCausesInAllModes(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "ebpf", "userspace"} {
		t.Run(mode, func(t *testing.T) { causesIn(t, mode, true) })
	}
	t.Run("ipvs", func(t *testing.T) {
		vm.With(t, func(t *testing.T) { causesIn(t, "ipvs", true) }, "ip_vs", "dummy")
	})
}
