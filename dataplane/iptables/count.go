package iptables

import (
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
)

// lengthBits of a fingerprint are the number of rules.
const lengthBits = 16

// length is how many rules a chain with this fingerprint has, or at least so many.
func length(sum uint64) int { return int(sum & (1<<lengthBits - 1)) }

// tables are those that chains are in.
var tables = []string{"nat", "filter"}

// count takes in how many rules there are, and how many of each table the plans
// that were carried out have written.
func (p *Plane) count(written map[iptables.Family]*plan) {
	var counts []kernel.RuleCount
	for _, f := range iptables.Families() {
		s := p.states[f]
		if s == nil {
			continue
		}
		for _, table := range tables {
			counts = append(counts, kernel.RuleCount{IPv6: f == iptables.IPv6, Table: table, Total: s.rules[table], Last: written[f].rulesOf(table)})
		}
	}
	p.counts.Store(&counts)
}

// rulesOf is how many rules the plan writes into a table; a nil plan none.
func (p *plan) rulesOf(table string) (n int) {
	if p == nil {
		return 0
	}
	for _, step := range []delta{p.refusals, p.nat, p.rest} {
		for id, c := range step {
			if id.table == table {
				n += len(c.rules)
			}
		}
	}
	return n
}
