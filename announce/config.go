package announce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/internal/iprange"
)

// Objects are the objects of MetalLB's API that say what to announce, by name.
type Objects struct {
	Pools             map[string]*v1beta1.IPAddressPool
	L2Advertisements  map[string]*v1beta1.L2Advertisement
	BGPAdvertisements map[string]*v1beta1.BGPAdvertisement
	BGPPeers          map[string]*v1beta2.BGPPeer
	BFDProfiles       map[string]*v1beta1.BFDProfile
	Communities       map[string]*v1beta1.Community
	// Passwords by the name of the Secret.
	Passwords map[string]string
	// RawFRR says that there is a ConfigMap bgpextras, with text for FRR.
	RawFRR bool
}

// Config is what the objects say, ready to be asked.
type Config struct {
	// Notes say what is accepted and has no effect.
	Notes []string

	pools   []pool
	l2      []l2Advertisement
	bgp     []bgpAdvertisement
	peers   []peer
	aliases map[string]Communities
}

type pool struct {
	name   string
	what   what
	labels labels.Set
	ranges []iprange.Range
}

// scope is what an advertisement is for, with its selectors read. A nil list of
// selectors selects all.
type scope struct {
	name          string
	what          what
	pools         []string
	poolSelectors []labels.Selector
	nodes         []labels.Selector
	services      []labels.Selector
}

// l2Advertisement is an L2Advertisement.
type l2Advertisement struct {
	scope
	interfaces []string
	preferred  []preference
}

type preference struct {
	weight   int32
	selector labels.Selector
}

// Read turns objects into a configuration. Problems name what of it is left out;
// all else is in force.
func Read(o Objects) (*Config, []string) {
	c := &Config{}
	r := &reader{}
	for _, p := range sorted(o.Pools) {
		c.pools = append(c.pools, r.pool(p))
	}
	for _, a := range sorted(o.L2Advertisements) {
		if read, ok := r.l2(a, o.Pools); ok {
			c.l2 = append(c.l2, read)
		}
	}
	r.profiles(o.BFDProfiles)
	for _, p := range sorted(o.BGPPeers) {
		if read, ok := r.peer(p, o.BFDProfiles, o.Passwords); ok {
			c.peers = append(c.peers, read)
		}
	}
	c.aliases = r.aliases(o.Communities)
	for _, a := range sorted(o.BGPAdvertisements) {
		if read, ok := r.bgp(a, o, c.aliases); ok {
			c.bgp = append(c.bgp, read)
		}
	}
	if o.RawFRR {
		r.problem("ConfigMap bgpextras", "raw FRR configuration is not used, since there is no FRR; see the annotations of Services and the fields of BGPPeers")
	}
	c.Notes = r.notes
	return c, r.problems
}

func sorted[T metav1.Object](objects map[string]T) []T {
	var list []T
	for _, o := range objects {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return list
}

// reader gathers what is wrong.
type reader struct{ problems, notes []string }

func (r *reader) problem(object, text string) {
	r.problems = append(r.problems, object+": "+text)
}

// pool reads a pool's ranges. What is wrong with these is the address
// controller's to say.
func (r *reader) pool(p *v1beta1.IPAddressPool) pool {
	read := pool{name: p.Name, what: ofPools, labels: p.Labels}
	for _, text := range p.Spec.Addresses {
		if addresses, err := iprange.Parse(text); err == nil {
			read.ranges = append(read.ranges, addresses)
		}
	}
	return read
}

// l2 reads an L2Advertisement. ok is false if it must not be used.
func (r *reader) l2(a *v1beta1.L2Advertisement, pools map[string]*v1beta1.IPAddressPool) (read l2Advertisement, ok bool) {
	object := "L2Advertisement " + a.Name
	w, ok := r.what(object, a.Annotations, ofPools|externalIPs)
	read = l2Advertisement{interfaces: a.Spec.Interfaces, scope: scope{
		name: a.Name, what: w, pools: a.Spec.IPAddressPools,
		poolSelectors: r.selectors(object, "ipAddressPoolSelectors", a.Spec.IPAddressPoolSelectors),
		nodes:         r.selectors(object, "nodeSelectors", a.Spec.NodeSelectors),
		services:      r.selectors(object, "serviceSelectors", a.Spec.ServiceSelectors),
	}}
	r.knowsPools(object, a.Spec.IPAddressPools, pools)
	for i, p := range a.Spec.PreferredNodeSelectors {
		field := fmt.Sprintf("preferredNodeSelectors[%d].preference", i)
		if s := r.selectors(object, field, []metav1.LabelSelector{p.Preference}); len(s) == 1 {
			read.preferred = append(read.preferred, preference{p.Weight, s[0]})
		}
	}
	return read, ok
}

// knowsPools names pools that aren't there.
func (r *reader) knowsPools(object string, names []string, pools map[string]*v1beta1.IPAddressPool) {
	for _, name := range names {
		if pools[name] == nil {
			r.problem(object, fmt.Sprintf("spec.ipAddressPools: there is no IPAddressPool %s", name))
		}
	}
}

// selectors reads label selectors. One that makes no sense selects nothing.
func (r *reader) selectors(object, field string, list []metav1.LabelSelector) []labels.Selector {
	var read []labels.Selector
	for i, text := range list {
		s, err := metav1.LabelSelectorAsSelector(&text)
		if err != nil {
			r.problem(object, fmt.Sprintf("spec.%s[%d]: %v", field, i, err))
			s = labels.Nothing()
		}
		read = append(read, s)
	}
	return read
}

// selects reports whether one of the selectors matches, or there are none.
func selects(selectors []labels.Selector, set labels.Set) bool {
	return len(selectors) == 0 || slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(set) })
}

// poolOf returns the pool that has the address, or nil.
func (c *Config) poolOf(a netip.Addr) *pool {
	for i, p := range c.pools {
		if slices.ContainsFunc(p.ranges, func(r iprange.Range) bool { return r.Contains(a) }) {
			return &c.pools[i]
		}
	}
	return nil
}

// isFor reports whether the advertisement is for a pool.
func (a *scope) isFor(p *pool) bool {
	if a.what&p.what == 0 {
		return false
	}
	if p.what != ofPools {
		return true
	}
	if len(a.pools) == 0 && len(a.poolSelectors) == 0 {
		return true
	}
	return slices.Contains(a.pools, p.name) || len(a.poolSelectors) > 0 && selects(a.poolSelectors, p.labels)
}

// weight is how gladly the node announces what the advertisement is for.
func (a *l2Advertisement) weight(node labels.Set) int32 {
	var sum int32
	for _, p := range a.preferred {
		if p.selector.Matches(node) {
			sum += p.weight
		}
	}
	return sum
}
