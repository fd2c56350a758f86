package bfd

import (
	"net/netip"
	"testing"
)

// TestForged: packets that somebody else sends in the router's place don't reach the session, and
// however many there are, the router's do.
func TestForged(t *testing.T) {
	const local, other = 7, 8
	for _, c := range []struct {
		router, forger string
		multiHop       bool
	}{{"192.0.2.1", "192.0.2.2", false}, {"2001:db8::1", "2001:db8::2", false}, {"192.0.2.1", "192.0.2.2", true}, {"2001:db8::1", "2001:db8::2", true}} {
		router, forger := netip.MustParseAddr(c.router), netip.MustParseAddr(c.forger)
		s := Session{Peer: "router", Address: router, MultiHop: c.multiHop, Settings: settings()} // at least 254 hops are left
		r := &running{Session: s, packets: make(chan packet, 16), machine: newMachine(s.Settings, local)}
		m := New(func() {}, func(string, string) {}, nil)
		m.sessions[s] = r
		here := r.socket()
		vrf, hops := here, here
		vrf.vrf, hops.multiHop = "red", !c.multiHop
		nearest, tooFar := 255, 254
		if c.multiHop {
			nearest, tooFar = 254, 253
		}
		down := packet{State: Down, Multiplier: 3, My: 1, Your: local}
		for what, forged := range map[string]func(){
			"another address":    func() { m.deliver(here, forger, 255, down) },
			"from too far":       func() { m.deliver(here, router, tooFar, down) },
			"no TTL":             func() { m.deliver(here, router, 0, down) },
			"another VRF":        func() { m.deliver(vrf, router, 255, down) },
			"the other port":     func() { m.deliver(hops, router, 255, down) },
			"of another session": func() { m.deliver(here, router, 255, packet{State: Down, Multiplier: 3, My: 1, Your: other}) },
		} {
			for range 2 * cap(r.packets) {
				forged()
			}
			if n := len(r.packets); n > 0 || r.status.Counts.Received > 0 {
				t.Errorf("%+v, %s: %d packets reach the session, %d count", c, what, n, r.status.Counts.Received)
			}
			m.deliver(here, router, nearest, packet{State: Up, Multiplier: 3, My: 1, Your: local})
			if len(r.packets) != 1 {
				t.Errorf("%+v, %s: the router's packet doesn't reach the session", c, what)
				continue
			}
			<-r.packets
			r.status.Counts.Received = 0
		}
	}
}
