package model

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestExpansion: whatever changes, the table without node ports decides alike,
// is what it would be if made at once, and differs from the last one where that
// says.
func TestExpansion(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	addrs := []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2"), addr("192.0.2.3"), addr("2001:db8::1"), addr("2001:db8::2")}
	pools := map[bool]PoolID{false: {Name: "a/b:", Proto: TCP}, true: {Name: "a/b:", Proto: TCP, IPv6: true}}
	table := NewTable()
	var x Expansion
	for step := range 2000 {
		e := table.Edit()
		for _, id := range pools {
			p := &Pool{ID: id}
			if random.IntN(2) == 0 {
				p.Empty = Drop
			}
			e.SetPool(p)
		}
		if random.IntN(4) == 0 {
			s := &Settings{}
			for _, a := range addrs {
				if random.IntN(2) == 0 {
					s.NodePortAddrs = append(s.NodePortAddrs, a)
				}
			}
			e.SetSettings(s)
		}
		for range random.IntN(4) {
			k := Key{addrs[random.IntN(len(addrs))], uint16(1 + random.IntN(3)), TCP}
			f := &Frontend{Key: k, Name: "exact", FrontendType: ExternalIP}
			if random.IntN(2) == 0 {
				f = &Frontend{Key: NodePortKey(k.Addr.Is6(), k.Port, TCP), Name: "port", FrontendType: NodePort}
			}
			f.Routes = [NumOrigins]Route{{Pool: pools[k.Addr.Is6()]}, {Pool: pools[k.Addr.Is6()]}, {Pool: pools[k.Addr.Is6()], Masquerade: random.IntN(2) == 0}}
			if random.IntN(3) == 0 {
				e.DeleteFrontend(f.Key)
			} else {
				e.SetFrontend(f)
			}
		}
		table = e.Table()
		if err := table.Validate(); err != nil {
			t.Fatal(err)
		}
		last := x.to
		got := x.Of(table)
		if at := Expand(table); at.String() != got.String() {
			t.Fatalf("step %d: of\n%s\nis made\n%s\nwant\n%s", step, table, got, at)
		}
		if last != nil {
			if again := got.Delta(last).Apply(last); again.String() != got.String() {
				t.Fatalf("step %d: changes lead to\n%s\nwant\n%s", step, again, got)
			}
		}
		for f := range got.Frontends() {
			if f.IsNodePort() {
				t.Fatalf("step %d: node port %s is left", step, f.Key)
			}
		}
		for _, a := range addrs {
			for port := range uint16(4) {
				p := Packet{Src: a, Dst: a, DstPort: port, Proto: TCP, In: "eth0"}
				one, other := table.Decide(p), got.Decide(p)
				if one.Action != other.Action || one.Pool != nil && !one.Pool.Equal(other.Pool) || one.Masquerade != other.Masquerade ||
					(one.Frontend == nil) != (other.Frontend == nil) || one.Frontend != nil && one.Frontend.Name != other.Frontend.Name {
					t.Fatalf("step %d: %s:%d: %+v and, without node ports, %+v", step, a, port, one, other)
				}
			}
		}
	}
}

// TestExpansionOfNothing: where there is no node port, nothing is made.
func TestExpansionOfNothing(t *testing.T) {
	var x Expansion
	table := NewTable()
	for range 3 {
		e := table.Edit()
		e.SetFrontend(&Frontend{Key: Key{addr("10.96.0.1"), 443, TCP}})
		e.SetSettings(&Settings{NodePortAddrs: []netip.Addr{addr("192.0.2.1")}})
		table = e.Table()
		if x.Of(table) != table {
			t.Error("a table without node ports is copied")
		}
	}
	e := table.Edit()
	e.SetFrontend(&Frontend{Key: NodePortKey(false, 30000, TCP), FrontendType: NodePort})
	withPort := x.Of(e.Table())
	if withPort.Frontend(Key{addr("192.0.2.1"), 30000, TCP}) == nil || withPort.NumFrontends() != 2 {
		t.Errorf("made\n%s", withPort)
	}
	if x.Of(nil) != nil {
		t.Error("nothing became something")
	}
}
