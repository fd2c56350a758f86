package model

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// stableTable has a load-balancer address with stable connections, and one
// without.
func stableTable(p *Pool) *Table {
	e := NewTable().Edit()
	e.SetPool(p)
	for i, stable := range []bool{true, false} {
		a := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
		direct := Route{Pool: p.ID, Masquerade: true, Direct: true, Stable: stable}
		plain := Route{Pool: p.ID, Masquerade: true}
		e.SetFrontend(&Frontend{Key: Key{a, 80, TCP}, Name: p.ID.Name, Entrance: LoadBalancerIP, Routes: [NumOrigins]Route{plain, plain, direct}})
	}
	return e.Table()
}

func midstream(client string, front byte) Packet {
	at := netip.MustParseAddrPort(client)
	return Packet{Src: at.Addr(), SrcPort: at.Port(), Dst: netip.AddrFrom4([4]byte{203, 0, 113, front}), DstPort: 80, Proto: TCP, In: "eth0"}
}

// TestResume: any node finds the backend that another one chose; when the backends
// have changed, it is the one or the other; and where nothing is promised, nobody is asked.
func TestResume(t *testing.T) {
	before := maglevPool(4, false)
	before.Scheduler = MaglevPortHashing
	after := before.without(1)
	after.Former = before.Backends
	after.Draining = before.Backends[1:2]
	table := stableTable(after)
	if err := table.Validate(); err != nil {
		t.Fatal(err)
	}
	for port := range 2000 {
		p := midstream(fmt.Sprintf("192.0.2.1:%d", 1024+port), 0)
		was, _ := before.Pick(HashAddrPort(netip.AddrPortFrom(p.Src, p.SrcPort)))
		is, _ := after.Pick(HashAddrPort(netip.AddrPortFrom(p.Src, p.SrcPort)))
		want := slices.CompactFunc([]Backend{is, was}, func(a, b Backend) bool { return a.AddrPort() == b.AddrPort() })
		if got := table.Resume(p); !slices.Equal(got, want) {
			t.Fatalf("port %d: %v, expected %v", p.SrcPort, got, want)
		}
		if got := table.Resume(midstream(fmt.Sprintf("192.0.2.1:%d", 1024+port), 1)); got != nil {
			t.Fatalf("without stable connections: %v", got)
		}
	}
	gone := before.without(1)
	gone.Former = before.Backends
	for port := range 2000 {
		list := stableTable(gone).Resume(midstream(fmt.Sprintf("192.0.2.1:%d", 1024+port), 0))
		if slices.ContainsFunc(list, func(b Backend) bool { return b.AddrPort() == before.Backends[1].AddrPort() }) {
			t.Fatalf("port %d: %v, of which one is gone for good", port, list)
		}
	}
}

// TestResumeByAddress: with the scheduler mh, a client's ports don't matter.
func TestResumeByAddress(t *testing.T) {
	table := stableTable(maglevPool(4, false))
	first := table.Resume(midstream("192.0.2.1:1024", 0))
	for port := range 100 {
		if got := table.Resume(midstream(fmt.Sprintf("192.0.2.1:%d", 1025+port), 0)); !slices.Equal(got, first) {
			t.Fatalf("port %d: %v, expected %v", 1025+port, got, first)
		}
	}
}

// TestResumeIsntForItself: an endpoint that reaches itself would be masqueraded.
func TestResumeIsntForItself(t *testing.T) {
	p := maglevPool(1, false)
	if got := stableTable(p).Resume(midstream(p.Backends[0].Addr.String()+":1024", 0)); len(got) > 0 {
		t.Errorf("%v", got)
	}
}
