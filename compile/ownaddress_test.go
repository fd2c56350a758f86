package compile

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairway-net/fairway/model"
)

// TestOwnAddress: packets to the node's own addresses pass, even if a Service
// range contains them.
func TestOwnAddress(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("10.96.5.14"), netip.MustParseAddr("fd00:96::7"), netip.MustParseAddr("192.0.2.1")}
	c := New(Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}})
	c.SetNode(Node{Name: "a", Addresses: own})
	table := c.Table()
	if want := own[:2]; !slices.Equal(table.Settings.Exempt, want) {
		t.Errorf("exempt are %v, want %v", table.Settings.Exempt, want)
	}
	for _, addr := range own {
		verdict := table.Decide(model.Packet{Src: netip.MustParseAddr("192.0.2.9"), Dst: addr, DstPort: 22, Proto: model.TCP})
		if verdict.Action != model.Pass {
			t.Errorf("packet to %s: %v, want it to pass", addr, verdict.Action)
		}
	}
}
