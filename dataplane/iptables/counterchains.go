package iptables

import (
	"slices"
	"strings"
	"sync"

	"github.com/fairway-net/fairway/internal/iptables"
)

// counterChains are the chains whose rules' counters tell of the traffic of Services.
// Connections are counted where a packet that table nat sees, the first of each,
// goes on to the chain of a pool: at the rule of the frontend, or at that of the
// origin in KUBE-EXT-…. What is refused is counted where it is. These chains are
// rewritten, and begin to count anew, only when Services come and go, not when
// endpoints do.
type counterChains struct {
	mu     sync.Mutex
	chains map[chainID]bool
}

func newCounterChains() *counterChains { return &counterChains{chains: map[chainID]bool{}} }

// wrote notes what is in a chain from now on; no rules if it is gone.
func (t *counterChains) wrote(id chainID, rules []string) {
	tells := id.name == invalidChain || slices.ContainsFunc(rules, func(r string) bool { return counts(id.table, r) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if tells && rules != nil {
		t.chains[id] = true
	} else {
		delete(t.chains, id)
	}
}

// of lists the chains in a table.
func (t *counterChains) of(table string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for id := range t.chains {
		if id.table == table {
			names = append(names, id.name)
		}
	}
	return names
}

// counts reports whether a rule's counter is of a Service, or of node ports on
// localhost.
func counts(table, rule string) bool {
	if table == "nat" {
		return toPool(rule) || onLocalhost(rule)
	}
	return refusing(rule) && nameIn(rule) != ""
}

// toPool reports whether a rule leads to a chain that chooses a backend.
func toPool(rule string) bool {
	return strings.Contains(rule, "-j "+poolChain) || strings.Contains(rule, "-j "+localPoolChain)
}

func onLocalhost(rule string) bool { return strings.HasPrefix(rule, "-d 127.") }

func refusing(rule string) bool {
	to := target(rule)
	return to == "REJECT" || to == "DROP"
}

// nameIn is the Service port that a rule's comment begins with; "" if it names
// none.
func nameIn(rule string) string {
	_, text, found := strings.Cut(rule, "--comment ")
	if !found {
		return ""
	}
	if quoted, isQuoted := strings.CutPrefix(text, `"`); isQuoted {
		text, _, _ = strings.Cut(quoted, `"`)
	}
	name, _, _ := strings.Cut(text, " ")
	if !strings.Contains(name, "/") {
		return ""
	}
	return name
}

// counterChainsOf are the chains of a family that tell.
func (p *Plane) counterChainsOf(f iptables.Family) *counterChains {
	if s := p.tell.Load(); s != nil {
		return (*s)[f]
	}
	return nil
}

// publish has others know which chains tell.
func (p *Plane) publish() {
	all := map[iptables.Family]*counterChains{}
	for f, s := range p.states {
		all[f] = s.counterChains
	}
	p.tell.Store(&all)
}
