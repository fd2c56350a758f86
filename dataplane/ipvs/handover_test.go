package ipvs

import (
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

func TestConnectionsOfServersAreRecognised(t *testing.T) {
	a := &actual{servers: map[serverID]*actualServer{
		keyServer(key("10.96.0.10:80", model.TCP)):    {},
		keyServer(key("[fd00:96::10]:80", model.TCP)): {},
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

func TestEndedFlows(t *testing.T) {
	for _, c := range []struct {
		proto model.Protocol
		state byte // as conntrack numbers them
		ended bool
	}{
		{model.TCP, 1, false}, // SYN_SENT
		{model.TCP, 3, false}, // ESTABLISHED
		{model.TCP, 4, false}, // FIN_WAIT
		{model.TCP, 6, false}, // LAST_ACK
		{model.TCP, tcpTimeWait, true},
		{model.TCP, tcpClose, true},
		{model.UDP, 0, false},
	} {
		tcp := nl.NewRtAttr(nl.CTA_PROTOINFO_TCP|unix.NLA_F_NESTED, nil)
		tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_STATE, []byte{c.state})
		f := flow{orig: tuple{proto: c.proto}, protoinfo: tcp.Serialize()}
		if f.ended() != c.ended {
			t.Errorf("%s in state %d: ended: %t", c.proto, c.state, f.ended())
		}
	}
}
