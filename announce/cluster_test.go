package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
)

// cluster is three nodes with what they know, of which things change one after the other.
type cluster struct {
	objects  Objects
	nodes    map[string]*Node
	services map[string]*balanced
}

// balanced is a Service with addresses.
type balanced struct {
	addresses   []string
	local       bool           // externalTrafficPolicy: Local
	endpoints   map[string]int // ready, by node
	labels      labels.Set
	annotations map[string]string
}

func newCluster() *cluster {
	c := &cluster{objects: bgpObjects(), nodes: map[string]*Node{}, services: map[string]*balanced{}}
	for i, name := range []string{"n1", "n2", "n3"} {
		c.nodes[name] = &Node{Labels: labels.Set{"kubernetes.io/hostname": name, "rack": fmt.Sprint(1 + i/2)}}
	}
	c.objects.L2Advertisements = map[string]*v1beta1.L2Advertisement{"link": {ObjectMeta: metav1.ObjectMeta{Name: "link"}}}
	c.services["web"] = &balanced{addresses: []string{"192.0.2.1", "2001:db8::1"}, endpoints: map[string]int{"n1": 1, "n2": 2}}
	return c
}

// served is what a node's data plane has in force.
func (c *cluster) served(node string) map[netip.Addr]Served {
	served := map[netip.Addr]Served{}
	for name, s := range c.services {
		all := 0
		for _, n := range s.endpoints {
			all += n
		}
		usable := all
		if s.local {
			usable = s.endpoints[node]
		}
		for _, text := range s.addresses {
			a := netip.MustParseAddr(text)
			at := served[a]
			if usable > 0 {
				at.Ready = append(at.Ready, "default/"+name)
			} else {
				at.Idle = append(at.Idle, "default/"+name)
			}
			if s.local {
				at.Local = max(at.Local, usable)
			}
			slices.Sort(at.Ready)
			served[a] = at
		}
	}
	return served
}

// who says which nodes announce an address on the link, and which tell routers of which
// prefixes: "n1 n2 | n1 n2>four".
func (c *cluster) who(address string) string {
	a := netip.MustParseAddr(address)
	config, _ := Read(c.objects)
	var links, routers []string
	for _, name := range []string{"n1", "n2", "n3"} {
		plan := Decide(config, *c.nodes[name], c.served(name), func(service string) Service {
			s := c.services[strings.TrimPrefix(service, "default/")]
			return Service{Labels: s.labels, Annotations: s.annotations}
		})
		if _, ok := plan.L2[a]; ok {
			links = append(links, name)
		}
		for _, peer := range plan.BGP[a].Peers {
			text := name + ">" + peer
			for _, p := range plan.BGP[a].Prefixes {
				r := plan.Routes[peer][p]
				if !p.IsSingleIP() {
					text += fmt.Sprintf("/%d", p.Bits())
				}
				if r.Weight > 0 {
					text += fmt.Sprintf("x%d", r.Weight)
				}
				if r.LocalPref > 0 {
					text += fmt.Sprintf("^%d", r.LocalPref)
				}
				if list := r.Communities.String(); list != "" {
					text += "[" + list + "]"
				}
			}
			routers = append(routers, text)
		}
	}
	return strings.Join(links, " ") + " | " + strings.Join(routers, " ")
}

const (
	everyNode  = "n1 n2 n3 | n1>four n2>four n3>four"
	everyNode6 = "n1 n2 n3 | n1>six n2>six n3>six"
)

// TestWhoAnnounces: for both families, who announces an address, after each of some changes.
func TestWhoAnnounces(t *testing.T) {
	type step struct {
		name   string
		change func(*cluster)
		four   string
		six    string // "" if it is the same but for the router's name
	}
	web := func(change func(*balanced)) func(*cluster) {
		return func(c *cluster) { change(c.services["web"]) }
	}
	endpoints := func(n1, n2, n3 int) func(*cluster) {
		return web(func(s *balanced) { s.endpoints = map[string]int{"n1": n1, "n2": n2, "n3": n3} })
	}
	ad := func(change func(*v1beta1.BGPAdvertisementSpec)) func(*cluster) {
		return func(c *cluster) { change(&c.objects.BGPAdvertisements["ad"].Spec) }
	}
	link := func(change func(*v1beta1.L2AdvertisementSpec)) func(*cluster) {
		return func(c *cluster) { change(&c.objects.L2Advertisements["link"].Spec) }
	}
	peer := func(change func(*v1beta2.BGPPeerSpec)) func(*cluster) {
		return func(c *cluster) { change(&c.objects.BGPPeers["four"].Spec); change(&c.objects.BGPPeers["six"].Spec) }
	}
	none := " | "
	for name, steps := range map[string][]step{
		"policy Cluster": {
			{"endpoints on two nodes", nil, everyNode, ""},
			{"on one", endpoints(0, 1, 0), everyNode, ""},
			{"on none", endpoints(0, 0, 0), none, ""},
			{"again", endpoints(0, 0, 5), everyNode, ""},
		},
		"policy Local": {
			{"endpoints on two nodes", web(func(s *balanced) { s.local = true }), "n1 n2 | n1>fourx1 n2>fourx2", ""},
			{"they move", endpoints(0, 0, 3), "n3 | n3>fourx3", ""},
			{"more of them", endpoints(2, 2, 2), "n1 n2 n3 | n1>fourx2 n2>fourx2 n3>fourx2", ""},
			{"none", endpoints(0, 0, 0), none, ""},
			{"policy Cluster, and one", func(c *cluster) { web(func(s *balanced) { s.local = false })(c); endpoints(1, 0, 0)(c) }, everyNode, ""},
		},
		"one address for two Services": {
			{"both have endpoints", func(c *cluster) {
				c.services["db"] = &balanced{addresses: c.services["web"].addresses, endpoints: map[string]int{"n3": 1}}
			}, everyNode, ""},
			{"one has none", endpoints(0, 0, 0), everyNode, ""},
			{"both Local, elsewhere", func(c *cluster) {
				endpoints(1, 0, 0)(c)
				c.services["web"].local, c.services["db"].local = true, true
			}, "n1 n3 | n1>fourx1 n3>fourx1", ""},
			{"the first goes", func(c *cluster) { delete(c.services, "web") }, "n3 | n3>fourx1", ""},
			{"and the other", func(c *cluster) { delete(c.services, "db") }, none, ""},
		},
		"nodes": {
			{"one is drained", func(c *cluster) { c.nodes["n2"].Unfit = "label" }, "n1 n3 | n1>four n3>four", ""},
			{"and another", func(c *cluster) { c.nodes["n1"].Unfit = "taint" }, "n3 | n3>four", ""},
			{"the first is back", func(c *cluster) { c.nodes["n2"].Unfit = "" }, "n2 n3 | n2>four n3>four", ""},
			{"advertisements of a rack", func(c *cluster) {
				ad(func(s *v1beta1.BGPAdvertisementSpec) { s.NodeSelectors = selecting("rack", "1") })(c)
			}, "n2 n3 | n2>four", ""},
			{"links of the other", link(func(s *v1beta1.L2AdvertisementSpec) { s.NodeSelectors = selecting("rack", "2") }), "n3 | n2>four", ""},
			{"a node moves there", func(c *cluster) { c.nodes["n2"].Labels["rack"] = "2" }, "n2 n3 | ", ""},
			{"and one comes in", func(c *cluster) { c.nodes["n1"].Unfit = "" }, "n2 n3 | n1>four", ""},
		},
		"peers": {
			{"of a rack", peer(func(s *v1beta2.BGPPeerSpec) { s.NodeSelectors = selecting("rack", "2") }), "n1 n2 n3 | n3>four", ""},
			{"of two racks", peer(func(s *v1beta2.BGPPeerSpec) { s.NodeSelectors = selecting("rack", "2", "rack", "1") }), everyNode, ""},
			{"of nobody", peer(func(s *v1beta2.BGPPeerSpec) { s.NodeSelectors = selecting("rack", "3") }), "n1 n2 n3 | ", ""},
			{"without selectors", peer(func(s *v1beta2.BGPPeerSpec) { s.NodeSelectors = nil }), everyNode, ""},
			{"without an ASN", peer(func(s *v1beta2.BGPPeerSpec) { s.ASN = 0 }), "n1 n2 n3 | ", ""},
			{"dynamic", peer(func(s *v1beta2.BGPPeerSpec) { s.DynamicASN = v1beta2.ExternalASN }), everyNode, ""},
			{"another one beside it, both families in one session", func(c *cluster) {
				addPeer(c.objects, "both", v1beta2.BGPPeerSpec{MyASN: 1, ASN: 2, Address: "198.51.100.9", DualStackAddressFamily: true})
			}, "n1 n2 n3 | n1>both n1>four n2>both n2>four n3>both n3>four", ""},
			{"which alone is told", ad(func(s *v1beta1.BGPAdvertisementSpec) { s.Peers = []string{"both"} }), "n1 n2 n3 | n1>both n2>both n3>both", ""},
			{"and goes", func(c *cluster) { delete(c.objects.BGPPeers, "both") }, "n1 n2 n3 | ", ""},
		},
		"advertisements": {
			{"communities", ad(func(s *v1beta1.BGPAdvertisementSpec) {
				s.Communities, s.NodeSelectors = []string{"1:2"}, selecting("rack", "2")
			}), "n1 n2 n3 | n3>four[1:2]", ""},
			{"others", ad(func(s *v1beta1.BGPAdvertisementSpec) { s.Communities = []string{"large:1:2:3"} }), "n1 n2 n3 | n3>four[large:1:2:3]", ""},
			{"an alias that nobody has", ad(func(s *v1beta1.BGPAdvertisementSpec) { s.Communities = []string{"far"} }), "n1 n2 n3 | ", ""},
			{"now it has a meaning", func(c *cluster) {
				c.objects.Communities["c"] = &v1beta1.Community{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1beta1.CommunitySpec{Communities: []v1beta1.CommunityAlias{{Name: "far", Value: "9:9"}}}}
			}, "n1 n2 n3 | n3>four[9:9]", ""},
			{"two are one", func(c *cluster) {
				advertise(c.objects, "more", v1beta1.BGPAdvertisementSpec{Communities: []string{"1:1"}, LocalPref: 50, NodeSelectors: selecting("rack", "2")})
				ad(func(s *v1beta1.BGPAdvertisementSpec) { s.LocalPref = 70 })(c)
			}, "n1 n2 n3 | n3>four^70[1:1 9:9]", ""},
			{"one goes", func(c *cluster) { delete(c.objects.BGPAdvertisements, "ad") }, "n1 n2 n3 | n3>four^50[1:1]", ""},
			{"both", func(c *cluster) { delete(c.objects.BGPAdvertisements, "more") }, "n1 n2 n3 | ", ""},
			{"and the link's", func(c *cluster) { delete(c.objects.L2Advertisements, "link") }, none, ""},
			{"the link's again", func(c *cluster) {
				c.objects.L2Advertisements["link"] = &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "link"}}
			}, "n1 n2 n3 | ", ""},
		},
		"aggregates": {
			{"of the pool's size", func(c *cluster) {
				ad(func(s *v1beta1.BGPAdvertisementSpec) {
					s.AggregationLength, s.AggregationLengthV6, s.NodeSelectors = ptr.To[int32](25), ptr.To[int32](64), selecting("rack", "2")
				})(c)
			}, "n1 n2 n3 | n3>four/25", "n1 n2 n3 | n3>six/64"},
			{"smaller ones", ad(func(s *v1beta1.BGPAdvertisementSpec) {
				s.AggregationLength, s.AggregationLengthV6 = ptr.To[int32](30), ptr.To[int32](112)
			}), "n1 n2 n3 | n3>four/30", "n1 n2 n3 | n3>six/112"},
			{"larger than the pool", ad(func(s *v1beta1.BGPAdvertisementSpec) {
				s.AggregationLength, s.AggregationLengthV6 = ptr.To[int32](24), ptr.To[int32](48)
			}), "n1 n2 n3 | ", ""},
			{"no length at all", ad(func(s *v1beta1.BGPAdvertisementSpec) {
				s.AggregationLength, s.AggregationLengthV6 = ptr.To[int32](0), nil
			}), "n1 n2 n3 | ", ""},
			{"with selectors of Services", ad(func(s *v1beta1.BGPAdvertisementSpec) {
				s.AggregationLength, s.ServiceSelectors = ptr.To[int32](25), selecting("app", "web")
			}), "n1 n2 n3 | ", ""},
			{"single addresses", ad(func(s *v1beta1.BGPAdvertisementSpec) {
				s.AggregationLength, s.ServiceSelectors = ptr.To[int32](32), nil
			}), "n1 n2 n3 | n3>four", ""},
		},
		"pools": {
			{"by name", func(c *cluster) {
				ad(func(s *v1beta1.BGPAdvertisementSpec) { s.IPAddressPools = []string{"silver"} })(c)
				link(func(s *v1beta1.L2AdvertisementSpec) { s.IPAddressPools = []string{"gold"} })(c)
			}, "n1 n2 n3 | ", ""},
			{"by label", ad(func(s *v1beta1.BGPAdvertisementSpec) { s.IPAddressPoolSelectors = selecting("tier", "gold") }), everyNode, ""},
			{"the label goes", func(c *cluster) { c.objects.Pools["gold"].Labels = nil }, "n1 n2 n3 | ", ""},
			{"the pool goes", func(c *cluster) { delete(c.objects.Pools, "gold") }, none, ""},
			{"another has the addresses", func(c *cluster) {
				c.objects.Pools["bronze"] = &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: "bronze"}, Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"192.0.2.1/32", "2001:db8::1/128"}}}
				ad(func(s *v1beta1.BGPAdvertisementSpec) { s.IPAddressPools, s.IPAddressPoolSelectors = nil, nil })(c)
			}, " | n1>four n2>four n3>four", ""},
		},
		"Services by label": {
			{"both ways of some", func(c *cluster) {
				ad(func(s *v1beta1.BGPAdvertisementSpec) { s.ServiceSelectors = selecting("app", "web") })(c)
				link(func(s *v1beta1.L2AdvertisementSpec) { s.ServiceSelectors = selecting("app", "db", "tier", "front") })(c)
			}, none, ""},
			{"it is one of the router's", web(func(s *balanced) { s.labels = labels.Set{"app": "web"} }), " | n1>four n2>four n3>four", ""},
			{"and the link's", web(func(s *balanced) { s.labels = labels.Set{"app": "web", "tier": "front"} }), everyNode, ""},
			{"the link's alone", web(func(s *balanced) { s.labels = labels.Set{"app": "db"} }), "n1 n2 n3 | ", ""},
			{"a community of its own", func(c *cluster) {
				ad(func(s *v1beta1.BGPAdvertisementSpec) {
					s.ServiceSelectors, s.NodeSelectors = nil, selecting("rack", "2")
				})(c)
				web(func(s *balanced) { s.annotations = map[string]string{AnnotationCommunities: "7:7"} })(c)
			}, "n1 n2 n3 | n3>four[7:7]", ""},
		},
		"one family": {
			{"IPv4", web(func(s *balanced) { s.addresses = s.addresses[:1] }), everyNode, none},
			{"IPv6", web(func(s *balanced) { s.addresses = []string{"2001:db8::1"} }), none, everyNode6},
			{"another address", web(func(s *balanced) { s.addresses = []string{"192.0.2.77"} }), none, none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			for _, s := range steps {
				if s.change != nil {
					s.change(c)
				}
				if s.six == "" {
					s.six = strings.ReplaceAll(s.four, "four", "six")
				}
				if got := c.who("192.0.2.1"); got != s.four {
					t.Errorf("%s: IPv4 by %q, want %q", s.name, got, s.four)
				}
				if got := c.who("2001:db8::1"); got != s.six {
					t.Errorf("%s: IPv6 by %q, want %q", s.name, got, s.six)
				}
			}
		})
	}
}
