package compile

import (
	"net/netip"
	"testing"
)

// TestAddressChange: an address of the node that comes or goes, as IPv6 privacy
// addresses do, changes the settings and nothing else, however many node ports
// there are, and has no Service compiled.
func TestAddressChange(t *testing.T) {
	c, _ := big(500)
	before, compiled := c.Table(), c.compiled
	node := testNode
	node.Addresses = append([]netip.Addr{netip.MustParseAddr("2001:db8::abcd")}, node.Addresses...)
	c.SetNode(node)
	after := c.Table()
	if c.compiled != compiled {
		t.Errorf("%d Services were compiled", c.compiled-compiled)
	}
	if d := after.Since(before); !d.Settings || len(d.Frontends) != 0 || len(d.Pools) != 0 {
		t.Errorf("settings changed: %v; %d frontends and %d pools changed", d.Settings, len(d.Frontends), len(d.Pools))
	}
	if !after.Settings.AnswersNodePorts(netip.MustParseAddr("2001:db8::abcd")) {
		t.Error("node ports don't answer at the new address")
	}
	if n := after.NumFrontends(); n != 1000 {
		t.Errorf("500 Services with a node port each have %d frontends", n)
	}
}
