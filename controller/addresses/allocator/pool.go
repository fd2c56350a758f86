package allocator

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/internal/iprange"
)

// Pool is addresses and the Services they are for.
type Pool struct {
	Name string
	// Ranges don't overlap each other or another pool's.
	Ranges []iprange.Range
	// AutoAssign gives addresses to Services that name neither address nor pool.
	AutoAssign bool
	// AvoidBuggy leaves out IPv4 addresses that end with .0 or .255.
	AvoidBuggy bool
	// Priority among the restricted pools that are for a Service: lower ones
	// first, 0 last.
	Priority int
	// Restricted pools come before the others and are only for what matches:
	// namespaces by name or label, if either is given, and Services by label,
	// if that is given.
	Restricted         bool
	Namespaces         []string
	NamespaceSelectors []labels.Selector
	ServiceSelectors   []labels.Selector
}

// contains reports whether the pool may give out a.
func (p *Pool) contains(a netip.Addr) bool {
	if p.AvoidBuggy && buggy(a) {
		return false
	}
	return slices.ContainsFunc(p.Ranges, func(r iprange.Range) bool { return r.Contains(a) })
}

// isFor reports whether the Service may have addresses of the pool.
func (p *Pool) isFor(r *Request) bool {
	if !p.Restricted {
		return true
	}
	if len(p.Namespaces)+len(p.NamespaceSelectors) > 0 &&
		!slices.Contains(p.Namespaces, r.Service.Namespace) && !anyMatches(p.NamespaceSelectors, r.NamespaceLabels) {
		return false
	}
	return len(p.ServiceSelectors) == 0 || anyMatches(p.ServiceSelectors, r.Labels)
}

func anyMatches(selectors []labels.Selector, set labels.Set) bool {
	return slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(set) })
}

// size counts the pool's addresses by family; more than an int64 holds count as
// its maximum.
func (p *Pool) size() (v4, v6 int64) {
	for _, r := range p.Ranges {
		n := r.Size()
		if p.AvoidBuggy {
			n -= buggyIn(r)
		}
		if r.From.Is4() {
			v4 += n
		} else if v6 += n; v6 < 0 {
			v6 = math.MaxInt64
		}
	}
	return v4, v6
}

// order sorts pools as they are tried for a Service that asks for none.
func order(pools []*Pool) {
	slices.SortFunc(pools, func(a, b *Pool) int {
		return cmp.Or(
			-cmp.Compare(btoi(a.Restricted), btoi(b.Restricted)),
			cmp.Compare(rank(a.Priority), rank(b.Priority)),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func rank(priority int) int {
	if priority <= 0 {
		return math.MaxInt
	}
	return priority
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sortRanges orders ranges by their first address, IPv4 first.
func sortRanges(ranges []iprange.Range) {
	slices.SortFunc(ranges, func(a, b iprange.Range) int { return a.From.Compare(b.From) })
}
