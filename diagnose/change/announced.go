package change

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/iprange"
)

// mostNamed is how many nodes are named in a line.
const mostNamed = 5

// network is what one world tells the network of its addresses.
type network struct {
	world    World
	config   *announce.Config
	problems []string
	says     map[netip.Addr]string   // how an address is announced, by which nodes
	routers  map[string]string       // by the name of the peer
	services map[netip.Addr][]string // that have the address, by "namespace/name"
	known    map[string]announce.Service
}

// networkOf decides for each node what it would announce if endpoints answered there.
func networkOf(w World) *network {
	n := &network{world: w, says: map[netip.Addr]string{}, routers: map[string]string{}, services: map[netip.Addr][]string{}}
	n.config, n.problems = announce.Read(w.Announced)
	n.known = map[string]announce.Service{}
	inForce := map[netip.Addr]announce.Served{}
	for _, s := range w.Objects.Services {
		name := s.Namespace + "/" + s.Name
		n.known[name] = announce.Service{Labels: s.Labels, Annotations: s.Annotations}
		for _, a := range n.addressesOf(s) {
			n.services[a] = append(n.services[a], name)
			served := inForce[a]
			served.Ready = append(served.Ready, name)
			served.ExternalIP = served.ExternalIP || slices.Contains(s.Spec.ExternalIPs, a.String())
			served.ClusterIP = served.ClusterIP || slices.Contains(s.Spec.ClusterIPs, a.String())
			inForce[a] = served
		}
	}
	ways, sessions := map[netip.Addr]map[string][]string{}, map[string]map[string][]string{}
	for _, node := range w.Objects.Nodes {
		plan := announce.Decide(n.config, announce.Node{Labels: labels.Set(node.Labels)}, inForce, func(s string) announce.Service { return n.known[s] })
		for a := range inForce {
			for _, way := range waysOf(&plan, a) {
				note(ways, a, way, node.Name)
			}
		}
		for _, p := range plan.Peers {
			note(sessions, p.Name, routerText(p), node.Name)
		}
	}
	for a, how := range ways {
		n.says[a] = byNodes(how, len(w.Objects.Nodes))
	}
	for name, how := range sessions {
		n.routers[name] = byNodes(how, len(w.Objects.Nodes))
	}
	return n
}

// addressesOf are the addresses of a Service that nodes may announce.
func (n *network) addressesOf(s *corev1.Service) []netip.Addr {
	return slices.DeleteFunc(explain.AddressesOf(s), func(a netip.Addr) bool {
		return !n.config.ClusterIPs() && slices.Contains(s.Spec.ClusterIPs, a.String())
	})
}

// note adds a node to those that do something.
func note[K comparable](of map[K]map[string][]string, key K, what, node string) {
	if of[key] == nil {
		of[key] = map[string][]string{}
	}
	of[key][what] = append(of[key][what], node)
}

// waysOf says how a node announces an address, or why it doesn't.
func waysOf(plan *announce.Plan, a netip.Addr) []string {
	var list []string
	if l2, yes := plan.L2[a]; yes {
		way := "announced on layer 2"
		if len(l2.Interfaces) > 0 {
			way += " (" + strings.Join(l2.Interfaces, ", ") + ")"
		}
		if l2.Weighted {
			way += fmt.Sprintf(" with weight %d", l2.Weight)
		}
		list = append(list, way)
	}
	if bgp, yes := plan.BGP[a]; yes {
		way := fmt.Sprintf("announced to %s as", strings.Join(bgp.Peers, ", "))
		for _, p := range bgp.Prefixes {
			way += fmt.Sprintf(" %s", p)
			if len(bgp.Peers) > 0 {
				way += attributes(plan.Routes[bgp.Peers[0]][p])
			}
		}
		list = append(list, way)
	}
	if why := plan.WhyNot[a]; len(list) == 0 && why != "" {
		list = append(list, "not announced: "+why)
	}
	return list
}

// attributes are what a route has beside its prefix.
func attributes(r announce.Route) string {
	text := ""
	if r.LocalPref != 0 {
		text += fmt.Sprintf(" with LOCAL_PREF %d", r.LocalPref)
	}
	if c := r.Communities.String(); c != "" {
		text += " with " + c
	}
	return text
}

func routerText(p announce.Peer) string {
	at := p.Interface
	if p.Address.IsValid() {
		at = p.Address.String()
	}
	text := fmt.Sprintf("a session of AS %d with AS %d at %s", p.LocalASN, p.ASN, at)
	if p.BFD.Profile != "" {
		text += " and BFD"
	}
	return text
}

// byNodes names the nodes that do each of several things.
func byNodes(how map[string][]string, all int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(how)) {
		nodes := how[what]
		slices.Sort(nodes)
		switch {
		case len(nodes) == all && len(how) == 1:
			parts = append(parts, what+" (every node)")
		case len(nodes) > mostNamed:
			parts = append(parts, fmt.Sprintf("%s (%s and %d more)", what, strings.Join(nodes[:mostNamed], ", "), len(nodes)-mostNamed))
		default:
			parts = append(parts, fmt.Sprintf("%s (%s)", what, strings.Join(nodes, ", ")))
		}
	}
	return strings.Join(parts, "; ")
}

// announced compares pools, and what the network is told of addresses.
func (in *Input) announced() []Change {
	before, after := networkOf(in.Before), networkOf(in.After)
	lines := map[string][]Line{}
	for a, names := range after.services {
		for _, name := range names {
			was := ""
			if slices.Contains(before.services[a], name) {
				was = before.says[a]
				if had := before.poolOf(a); had != "" && after.poolOf(a) == "" {
					lines["Service "+name] = append(lines["Service "+name], Line{Wrong, fmt.Sprintf("%s: pool %s no longer has it: the Service gets another address, or none", a, had)})
				}
			}
			lines["Service "+name] = append(lines["Service "+name], compareTexts(a.String(), was, after.says[a])...)
		}
	}
	for a, names := range before.services { // cluster IPs that are no longer announced
		for _, name := range names {
			if _, there := after.known[name]; there && !slices.Contains(after.services[a], name) && after.services[a] == nil {
				lines["Service "+name] = append(lines["Service "+name], compareTexts(a.String(), before.says[a], "")...)
			}
		}
	}
	for _, name := range unionOf(before.routers, after.routers) {
		lines["BGPPeer "+name] = append(lines["BGPPeer "+name], compareTexts(name, before.routers[name], after.routers[name])...)
	}
	for _, name := range unionOf(before.world.Announced.Pools, after.world.Announced.Pools) {
		lines["IPAddressPool "+name] = append(lines["IPAddressPool "+name], comparePools(before.world.Announced.Pools[name], after.world.Announced.Pools[name])...)
	}
	for _, problem := range append(after.problems, after.overlaps()...) {
		if !slices.Contains(append(before.problems, before.overlaps()...), problem) {
			object, what, _ := strings.Cut(problem, ": ")
			lines[object] = append(lines[object], Line{Wrong, what})
		}
	}
	return changesOf(lines)
}

// changesOf are the objects of which there is something to say, in order.
func changesOf(lines map[string][]Line) []Change {
	var list []Change
	for _, object := range slices.Sorted(maps.Keys(lines)) {
		if l := lines[object]; len(l) > 0 {
			slices.SortFunc(l, func(a, b Line) int { return strings.Compare(a.What, b.What) })
			list = append(list, Change{object, l})
		}
	}
	return list
}

func unionOf[V any](a, b map[string]V) []string {
	names := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(names)
	return slices.Compact(names)
}

// compareTexts compares what is said of something; "" is nothing.
func compareTexts(of, was, is string) []Line {
	switch {
	case was == is:
		return nil
	case was == "":
		return []Line{{Appears, of + ": " + is}}
	case is == "":
		return []Line{{Goes, of + ": no longer " + was}}
	}
	return []Line{{Changes, fmt.Sprintf("%s: %s; it was %s", of, is, was)}}
}

// comparePools compares what a pool gives, and to whom. nil is no pool.
func comparePools(was, is *v1beta1.IPAddressPool) []Line {
	var old, next v1beta1.IPAddressPoolSpec
	if was != nil {
		old = was.Spec
	}
	if is != nil {
		next = is.Spec
	}
	var lines []Line
	for _, a := range next.Addresses {
		if !slices.Contains(old.Addresses, a) {
			lines = append(lines, Line{Appears, "addresses " + a})
		}
	}
	for _, a := range old.Addresses {
		if !slices.Contains(next.Addresses, a) {
			lines = append(lines, Line{Goes, "addresses " + a})
		}
	}
	if was == nil || is == nil {
		return lines
	}
	if asks := isAsked(is); asks != isAsked(was) {
		to := map[bool]string{true: "only to Services that name it", false: "also to Services that name no pool"}
		lines = append(lines, Line{Changes, "its addresses go " + to[asks]})
	}
	if !equality.Semantic.DeepEqual(old.AllocateTo, next.AllocateTo) {
		lines = append(lines, Line{Changes, "spec.serviceAllocation: its addresses go to other Services from now on"})
	}
	return lines
}

// isAsked reports whether a pool gives addresses only to Services that name it.
func isAsked(p *v1beta1.IPAddressPool) bool { return p.Spec.AutoAssign != nil && !*p.Spec.AutoAssign }

// ranges are a pool's addresses. What can't be read isn't there.
func ranges(p *v1beta1.IPAddressPool) []iprange.Range {
	var list []iprange.Range
	for _, text := range p.Spec.Addresses {
		if r, err := iprange.Parse(text); err == nil {
			list = append(list, r)
		}
	}
	return list
}

// poolOf is the pool that has an address; "" for none.
func (n *network) poolOf(a netip.Addr) string {
	for _, name := range slices.Sorted(maps.Keys(n.world.Announced.Pools)) {
		if slices.ContainsFunc(ranges(n.world.Announced.Pools[name]), func(r iprange.Range) bool { return r.Contains(a) }) {
			return name
		}
	}
	return ""
}

// overlaps names pools that have addresses of others.
func (n *network) overlaps() []string {
	var list []string
	pools := n.world.Announced.Pools
	names := slices.Sorted(maps.Keys(pools))
	for i, a := range names {
		for _, b := range names[i+1:] {
			if slices.ContainsFunc(ranges(pools[a]), func(r iprange.Range) bool { return slices.ContainsFunc(ranges(pools[b]), r.Overlaps) }) {
				list = append(list, fmt.Sprintf("IPAddressPool %s: overlaps pool %s: the older one has the addresses", b, a))
			}
		}
	}
	return list
}

// together joins changes of the same object.
func together(lists ...[]Change) []Change {
	lines := map[string][]Line{}
	var order []string
	for _, c := range slices.Concat(lists...) {
		if _, known := lines[c.Object]; !known {
			order = append(order, c.Object)
		}
		lines[c.Object] = append(lines[c.Object], c.Lines...)
	}
	list := []Change{}
	for _, object := range order {
		list = append(list, Change{object, lines[object]})
	}
	return list
}
