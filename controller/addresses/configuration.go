package addresses

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/controller/addresses/allocator"
	"github.com/fairway-net/fairway/internal/iprange"
)

// problem is what is wrong with a pool. The rest of it is in force.
type problem struct {
	pool string
	text string
}

func (p problem) String() string { return fmt.Sprintf("IPAddressPool %s: %s", p.pool, p.text) }

// reserved is addresses that no Service may have.
type reserved struct {
	what   string
	ranges []iprange.Range
}

// read turns pools into the allocator's terms. Where two overlap, the older one
// has the addresses.
func read(objects []*v1beta1.IPAddressPool, taken []reserved) (pools []allocator.Pool, problems []problem) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b *v1beta1.IPAddressPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, o := range objects {
		pool, faults := readPool(o)
		pool.Restricted, faults = readAllocation(o.Spec.AllocateTo, &pool, faults)
		for _, t := range taken {
			pool.Ranges, faults = take(pool.Ranges, t, faults)
		}
		for _, other := range pools {
			pool.Ranges, faults = take(pool.Ranges, reserved{"pool " + other.Name, other.Ranges}, faults)
		}
		problems = appendProblems(problems, o.Name, faults)
		pools = append(pools, pool)
	}
	return pools, problems
}

func appendProblems(problems []problem, pool string, faults []string) []problem {
	for _, f := range faults {
		problems = append(problems, problem{pool, f})
	}
	return problems
}

func readPool(o *v1beta1.IPAddressPool) (pool allocator.Pool, faults []string) {
	pool = allocator.Pool{
		Name:       o.Name,
		AutoAssign: o.Spec.AutoAssign == nil || *o.Spec.AutoAssign,
		AvoidBuggy: o.Spec.AvoidBuggyIPs,
	}
	if len(o.Spec.Addresses) == 0 {
		faults = append(faults, "spec.addresses: empty")
	}
	for i, text := range o.Spec.Addresses {
		r, err := iprange.Parse(text)
		if err != nil {
			faults = append(faults, fmt.Sprintf("spec.addresses[%d]: %v", i, err))
			continue
		}
		if slices.ContainsFunc(pool.Ranges, r.Overlaps) {
			faults = append(faults, fmt.Sprintf("spec.addresses[%d]: %s overlaps what is listed before", i, text))
		}
		pool.Ranges = append(pool.Ranges, iprange.Without([]iprange.Range{r}, pool.Ranges)...)
	}
	return pool, faults
}

// take removes the taken addresses from ranges and says so.
func take(ranges []iprange.Range, taken reserved, faults []string) ([]iprange.Range, []string) {
	for _, t := range taken.ranges {
		if slices.ContainsFunc(ranges, t.Overlaps) {
			faults = append(faults, fmt.Sprintf("spec.addresses: overlaps %s (%s); these addresses are left out", taken.what, short(t)))
		}
	}
	return iprange.Without(ranges, taken.ranges), faults
}

func short(r iprange.Range) string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.String()
}

// readAllocation fills in which Services a pool is for. A selector with a fault
// matches nothing, so that nobody has the pool by mistake.
func readAllocation(a *v1beta1.ServiceAllocation, pool *allocator.Pool, faults []string) (bool, []string) {
	if a == nil {
		return false, faults
	}
	pool.Priority, pool.Namespaces = a.Priority, a.Namespaces
	if a.Priority < 0 {
		faults = append(faults, fmt.Sprintf("spec.serviceAllocation.priority: %d is less than 0", a.Priority))
	}
	pool.NamespaceSelectors, faults = readSelectors("namespaceSelectors", a.NamespaceSelectors, faults)
	pool.ServiceSelectors, faults = readSelectors("serviceSelectors", a.ServiceSelectors, faults)
	return true, faults
}

func readSelectors(field string, selectors []metav1.LabelSelector, faults []string) ([]labels.Selector, []string) {
	var list []labels.Selector
	for i, text := range selectors {
		s, err := metav1.LabelSelectorAsSelector(&text)
		if err != nil {
			faults = append(faults, fmt.Sprintf("spec.serviceAllocation.%s[%d]: %v", field, i, err))
			s = labels.Nothing()
		}
		list = append(list, s)
	}
	return list, faults
}

// reservedOf are the addresses that pools must not have: Service ranges and what
// nodes have themselves.
func reservedOf(serviceCIDRs []netip.Prefix, nodes []*corev1.Node) []reserved {
	var list []reserved
	for _, cidr := range serviceCIDRs {
		list = append(list, reserved{"the range of cluster IPs", []iprange.Range{iprange.FromPrefix(cidr)}})
	}
	for _, n := range nodes {
		var own []iprange.Range
		for _, a := range nodeAddresses(n) {
			own = append(own, iprange.Of(a))
		}
		if len(own) > 0 {
			list = append(list, reserved{"an address of node " + n.Name, own})
		}
	}
	return list
}

func nodeAddresses(n *corev1.Node) []netip.Addr {
	var list []netip.Addr
	for _, text := range n.Status.Addresses {
		a, err := netip.ParseAddr(text.Address)
		if err == nil && !slices.Contains(list, a.Unmap()) {
			list = append(list, a.Unmap())
		}
	}
	return list
}

// summary is all problems in one text.
func summary(problems []problem) string {
	var texts []string
	for _, p := range problems {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, "; ")
}
