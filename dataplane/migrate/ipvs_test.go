package migrate

import (
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/model"
)

func TestLinesOfIPVS(t *testing.T) {
	key := func(addr string, proto model.Protocol) model.Key {
		a := netip.MustParseAddrPort(addr)
		return model.Key{Addr: a.Addr(), Port: a.Port(), Proto: proto}
	}
	for _, c := range []struct {
		read func(string) (model.Key, bool)
		line string
		want model.Key
	}{
		{serverOfIPVS, "IP Virtual Server version 1.2.1 (size=4096)", model.Key{}},
		{serverOfIPVS, "Prot LocalAddress:Port Scheduler Flags", model.Key{}},
		{serverOfIPVS, "  -> RemoteAddress:Port Forward Weight ActiveConn InActConn", model.Key{}},
		{serverOfIPVS, "TCP  0A60000A:0050 rr ", key("10.96.0.10:80", model.TCP)},
		{serverOfIPVS, "TCP  0A60000D:0050 mh (mh-fallback) persistent 10800 FFFFFFFF", key("10.96.0.13:80", model.TCP)},
		{serverOfIPVS, "UDP  [fd00:0010:0096:0000:0000:0000:0000:0053]:0035 rr ", key("[fd00:10:96::53]:53", model.UDP)},
		{serverOfIPVS, "FWM  46000010 rr ", model.Key{}},
		{serverOfIPVS, "  -> 0AF40102:1F90      Masq    1      0          0         ", model.Key{}},
		{connectionOfIPVS, "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData", model.Key{}},
		{connectionOfIPVS, "TCP AC1E6401 DD66 AC1E000B 753A 0AF40202 1F90 TIME_WAIT        84", key("172.30.0.11:30010", model.TCP)},
		{connectionOfIPVS, "TCP AC1E6401 0000 0A60000D 0050 0AF40202 1F91 NONE           8400", model.Key{}},
		{connectionOfIPVS, "UDP [fd00:0010:0244:0000:0000:0000:0000:0002] 0035 [fd00:0010:0096:0000:0000:0000:0000:0053] 0035 [fd00:0010:0244:0000:0000:0000:0000:0003] 2382 UDP            250", key("[fd00:10:96::53]:53", model.UDP)},
	} {
		if got, ok := c.read(c.line); ok != c.want.Addr.IsValid() || ok && got != c.want {
			t.Errorf("%q: %+v, %t", c.line, got, ok)
		}
	}
}
