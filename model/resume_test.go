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
		e.SetFrontend(&Frontend{Key: Key{a, 80, TCP}, Name: p.ID.Name, FrontendType: LoadBalancerIP, Routes: [NumOrigins]Route{plain, plain, direct}})
	}
	return e.Table()
}

func midstream(client string, front byte) Packet {
	at := netip.MustParseAddrPort(client)
	return Packet{Src: at.Addr(), SrcPort: at.Port(), Dst: netip.AddrFrom4([4]byte{203, 0, 113, front}), DstPort: 80, Proto: TCP, In: "eth0"}
}

// TestResume: any node finds the backend that another one chose, also where backends have
// come or gone meanwhile: then most connections have it first or second. Where nothing is
// promised, nobody is asked.
func TestResume(t *testing.T) {
	whole := maglevPool(6, false)
	whole.Scheduler, whole.Stable = MaglevPortHashing, true
	of := func(backends, draining []Backend) *Pool {
		p := *whole
		p.Backends, p.Draining = backends, draining
		return &p
	}
	all := whole.Backends
	for _, c := range []struct {
		what          string
		before, after *Pool
		lost          int // of 500
	}{
		{"nothing has changed", of(all, nil), of(all, nil), 0},
		{"one has come", of(all[:5], nil), of(all, nil), 5},
		{"two have come", of(all[:4], nil), of(all, nil), 50},
		{"one drains", of(all, nil), of(slices.Concat(all[:2], all[3:]), all[2:3]), 5},
		{"two drain", of(all, nil), of(all[2:], all[:2]), 5},
		{"one has come and one drains", of(all[:5], nil), of(slices.Concat(all[:2], all[3:]), all[2:3]), 15},
		{"one that drained is gone", of(all[:5], all[5:]), of(all[:5], nil), 0},
	} {
		table, lost := stableTable(c.after), 0
		if err := table.Validate(); err != nil {
			t.Fatal(err)
		}
		for port := range 500 {
			p := midstream(fmt.Sprintf("192.0.2.1:%d", 1024+port), 0)
			was, _ := c.before.Pick(HashAddrPort(netip.AddrPortFrom(p.Src, p.SrcPort)))
			is, _ := c.after.Pick(HashAddrPort(netip.AddrPortFrom(p.Src, p.SrcPort)))
			got := table.Resume(p)
			if len(got) == 0 || len(got) > 2 || got[0] != is || len(got) == 2 && got[0] == got[1] {
				t.Fatalf("%s, port %d: %v, expected first %v, and perhaps another one", c.what, p.SrcPort, got, is)
			}
			if !slices.Contains(got, was) {
				lost++
			}
			if got := table.Resume(midstream(fmt.Sprintf("192.0.2.1:%d", 1024+port), 1)); got != nil {
				t.Fatalf("without stable connections: %v", got)
			}
		}
		if lost > c.lost {
			t.Errorf("%s: %d of 500 connections are asked for elsewhere, expected %d at most", c.what, lost, c.lost)
		}
		t.Logf("%s: %d of 500", c.what, lost)
	}
}

// TestSecondsOfMany: pools of many backends have a second choice where one drains, and only
// there.
func TestSecondsOfMany(t *testing.T) {
	before := maglevPool(40, false)
	before.Stable = true
	after := before.without(3)
	after.Stable = true
	if got := after.SecondChoices(after.Maglev()); slices.ContainsFunc(got, func(i uint16) bool { return i != NoSecond }) {
		t.Errorf("seconds although nobody drains: %v", got[:20])
	}
	after.Draining = before.Backends[3:4]
	firstBefore, firsts := before.Maglev(), after.Maglev()
	seconds := after.SecondChoices(firsts)
	for place, i := range firstBefore {
		was, is := before.Backends[i], after.Backends[firsts[place]]
		switch second := seconds[place]; {
		case was == is:
			if second != NoSecond {
				t.Fatalf("place %d: %v, which nobody had", place, after.All()[second])
			}
		case second == NoSecond || after.All()[second] != was:
			t.Fatalf("place %d: second %d, expected %v", place, second, was)
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
