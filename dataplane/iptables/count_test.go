package iptables

import (
	"testing"

	"github.com/fairway-net/fairway/internal/iptables"
)

// TestRulesAreCounted compares the running count with the chains' own lengths
// after Services came and went.
func TestRulesAreCounted(t *testing.T) {
	table := cluster(20, 3)
	s := newState(iptables.IPv4, defaultMark, table.Settings)
	s.load(table)
	less := table.Edit()
	gone := 0
	for f := range table.Frontends() {
		if gone++; gone%2 == 0 {
			less.DeleteFrontend(f.Key)
		}
	}
	want := less.Table()
	did := s.change(want, want.Since(table))
	for _, name := range tables {
		sum := 0
		for id, f := range s.all() {
			if id.table == name {
				sum += length(f)
			}
		}
		if s.rules[name] != sum || sum == 0 {
			t.Errorf("table %s: %d counted, %d there", name, s.rules[name], sum)
		}
	}
	var none map[iptables.Family]*plan
	if did.rulesOf("nat") == 0 || none[iptables.IPv4].rulesOf("nat") != 0 {
		t.Errorf("%d rules written", did.rulesOf("nat"))
	}
}
