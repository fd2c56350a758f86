package ipvs

import (
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

func TestConnectionsOfServersAreRecognised(t *testing.T) {
	a := &actual{servers: map[lvs.ServerID]*actualServer{
		lvs.KeyServer(key("10.96.0.10:80", model.TCP)):    {},
		lvs.KeyServer(key("[fd00:96::10]:80", model.TCP)): {},
	}}
	const head = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n"
	for line, want := range map[string]bool{
		"TCP 0AF40002 A8C8 0A60000A 0050 0AF40002 1F90 ESTABLISHED     54\n":                                                                                                    true,
		"TCP 0AF40002 A8C8 0A60000B 0050 0AF40002 1F90 ESTABLISHED     54\n":                                                                                                    false,
		"TCP 0AF40002 0000 0A60000A 0050 0AF40002 1F90 NONE            54\n":                                                                                                    false,
		"TCP [fd00:0244:0000:0000:0000:0000:0000:0002] A8C8 [fd00:0096:0000:0000:0000:0000:0000:0010] 0050 [fd00:0244:0000:0000:0000:0000:0000:0003] 1F90 ESTABLISHED     54\n": true,
		"": false,
	} {
		if got := a.connected(head + line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// TestRemembered finds connections by the port of their client in IPVS's list.
func TestRemembered(t *testing.T) {
	known := remembered("Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n" +
		"TCP AC1E6401 D712 AC1E000B 753A 0AF40202 1F90 TIME_WAIT        84\n" +
		"UDP [fd00:0244:0000:0000:0000:0000:0000:0002] 0035 [fd00:0096:0000:0000:0000:0000:0000:0010] 0050 [fd00:0244:0000:0000:0000:0000:0000:0003] 1F90 UDP     54\n")
	for _, c := range []struct {
		from, to string
		proto    model.Protocol
		want     bool
	}{
		{"172.30.100.1:55058", "172.30.0.11:30010", model.TCP, true},
		{"172.30.100.1:55059", "172.30.0.11:30010", model.TCP, false},
		{"172.30.100.1:55058", "172.30.0.11:30010", model.UDP, false},
		{"[fd00:244::2]:53", "[fd00:96::10]:80", model.UDP, true},
	} {
		f := &conntrack.Flow{Proto: c.proto, Client: netip.MustParseAddrPort(c.from), Frontend: netip.MustParseAddrPort(c.to)}
		if known[inList(f)] != c.want {
			t.Errorf("%s, want it known: %t", inList(f), c.want)
		}
	}
}
