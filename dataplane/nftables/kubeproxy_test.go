package nftables

import (
	"context"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
)

// leaveKubeProxy makes tables like those of kube-proxy in nftables mode.
func leaveKubeProxy(t *testing.T) {
	t.Helper()
	for _, family := range []string{"ip", "ip6"} {
		for _, line := range []string{
			"add table F kube-proxy",
			"add chain F kube-proxy services",
			"add chain F kube-proxy nat-prerouting { type nat hook prerouting priority dstnat ; }",
			"add chain F kube-proxy nat-output { type nat hook output priority -100 ; }",
			"add chain F kube-proxy nat-postrouting { type nat hook postrouting priority srcnat ; }",
			"add rule F kube-proxy nat-prerouting jump services",
			"add rule F kube-proxy nat-output jump services",
		} {
			nft(t, strings.Fields(strings.ReplaceAll(line, " F ", " "+family+" "))...)
		}
	}
}

// TestKubeProxyGoes: its tables are removed once this mode is complete, again if
// they come back, and when the mode is removed itself, unless they shall stay.
func TestKubeProxyGoes(t *testing.T) {
	inNamespace(t)
	nft(t, "add", "table", "ip", "kube-proxy-of-others")
	there := func() bool { return strings.Contains(nft(t, "list", "tables"), "kube-proxy\n") }
	p := newPlane(t, kernel.Options{})
	table := everything()
	for _, verify := range []bool{false, true} {
		leaveKubeProxy(t)
		apply(t, p, table, verify)
		if there() {
			t.Errorf("applied with verify %v, kube-proxy's tables are still there", verify)
		}
		checkObjects(t, p, table)
	}
	for _, keep := range []bool{true, false} {
		leaveKubeProxy(t)
		if err := newPlane(t, kernel.Options{KeepKubeProxy: keep}).Remove(context.Background()); err != nil {
			t.Fatal(err)
		}
		if there() != keep {
			t.Errorf("removed with KeepKubeProxy %v: kube-proxy's tables are there: %v", keep, !keep)
		}
	}
	if !strings.Contains(nft(t, "list", "tables"), "kube-proxy-of-others") {
		t.Error("a table of others has been removed")
	}
}
