package iptables

import (
	"bytes"
	"maps"
	"testing"

	"github.com/fairway-net/fairway/internal/iptables"
)

// TestLegacyWritesTablesOnce counts how often the kernel's tables are replaced
// at start: the legacy variant reads and writes all of a table for each block,
// and a table of 10,000 Services costs a second of the kernel's time.
func TestLegacyWritesTablesOnce(t *testing.T) {
	full := cluster(200, 5)
	for _, natFirst := range []bool{false, true} {
		s := newState(iptables.IPv4, defaultMark, full.Settings)
		p := s.replace(full, nil)
		p.jumps, p.natFirst = jumps(), natFirst
		inputs := p.inputs(iptables.Legacy)
		if len(inputs) != 1 {
			t.Fatalf("%d runs of iptables-restore, want 1", len(inputs))
		}
		if n := bytes.Count(inputs[0], []byte("*nat\n")); n != 1 {
			t.Errorf("table nat is written %d times, want once", n)
		}
		first := bytes.Index(inputs[0], []byte("*nat\n")) < bytes.Index(inputs[0], []byte("*filter\n"))
		if first != natFirst {
			t.Errorf("nat comes before filter: %t, want %t", first, natFirst)
		}
	}
}

// TestComparingHoldsNoRules counts what comparing with the kernel writes, and
// keeps in memory, where nothing differs: no rule.
func TestComparingHoldsNoRules(t *testing.T) {
	full := cluster(50, 3)
	s := newState(iptables.IPv4, defaultMark, full.Settings)
	if p := s.replace(full, nil); p.lines() < 400 {
		t.Fatalf("%d lines for 50 Services", p.lines())
	}
	there := s.all()
	victim := chainID{"nat", servicesChain}
	changed := maps.Clone(there)
	changed[victim]++
	stranger := chainID{"nat", backendChain + "GONE"}
	changed[stranger] = 1
	for _, c := range []struct {
		there map[chainID]uint64
		want  delta
	}{{there, delta{}}, {changed, delta{victim: {}, stranger: {delete: true}}}} {
		again := newState(iptables.IPv4, defaultMark, full.Settings)
		p := again.replace(full, maps.Clone(c.there))
		if len(p.refusals)+len(p.rest) != 0 || len(p.nat) != len(c.want) {
			t.Errorf("%d chains of table nat and %d of table filter are written, want %d", len(p.nat), len(p.refusals)+len(p.rest), len(c.want))
		}
		for id, want := range c.want {
			if got, found := p.nat[id]; !found || got.delete != want.delete {
				t.Errorf("%s: deleted %t, want %t", id, got.delete, want.delete)
			}
		}
		if !maps.Equal(again.all(), there) || !maps.Equal(again.counterChains.chains, s.counterChains.chains) {
			t.Error("what there is isn't known any more")
		}
	}
}
