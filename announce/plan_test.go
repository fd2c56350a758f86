package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

func selecting(pairs ...string) []metav1.LabelSelector {
	var list []metav1.LabelSelector
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, metav1.LabelSelector{MatchLabels: map[string]string{pairs[i]: pairs[i+1]}})
	}
	return list
}

func objects(change func(*v1beta1.L2AdvertisementSpec)) Objects {
	o := Objects{
		Pools: map[string]*v1beta1.IPAddressPool{
			"gold":   {ObjectMeta: metav1.ObjectMeta{Name: "gold", Labels: map[string]string{"tier": "gold"}}, Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"192.0.2.0/25", "2001:db8::/64"}}},
			"silver": {ObjectMeta: metav1.ObjectMeta{Name: "silver"}, Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"192.0.2.128-192.0.2.255"}}},
		},
		L2Advertisements: map[string]*v1beta1.L2Advertisement{"ad": {ObjectMeta: metav1.ObjectMeta{Name: "ad"}}},
	}
	if change != nil {
		change(&o.L2Advertisements["ad"].Spec)
	}
	return o
}

func with(o Objects, name string, spec v1beta1.L2AdvertisementSpec) Objects {
	o.L2Advertisements[name] = &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	return o
}

func TestDecide(t *testing.T) {
	ready := Served{Ready: []string{"default/web"}}
	here := Node{Labels: labels.Set{"kubernetes.io/hostname": "n1", "rack": "1"}}
	tests := []struct {
		name    string
		objects Objects
		node    Node
		served  Served
		want    string // of 192.0.2.1: "interfaces weight", or why not
		silver  string // of 192.0.2.200, if not the same
	}{
		{"everything", objects(nil), here, ready, "[] 0", ""},
		{"no advertisement", Objects{Pools: objects(nil).Pools}, here, ready, "no L2Advertisement or BGPAdvertisement is for pool gold", "pool silver"},
		{"a pool by name", objects(func(s *v1beta1.L2AdvertisementSpec) { s.IPAddressPools = []string{"gold"} }), here, ready, "[] 0", "no L2Advertisement or BGPAdvertisement is for pool silver"},
		{"a pool by label", objects(func(s *v1beta1.L2AdvertisementSpec) { s.IPAddressPoolSelectors = selecting("tier", "gold") }), here, ready, "[] 0", "no L2Advertisement or BGPAdvertisement is for pool silver"},
		{"a pool by name and one by label", objects(func(s *v1beta1.L2AdvertisementSpec) {
			s.IPAddressPools, s.IPAddressPoolSelectors = []string{"silver"}, selecting("tier", "gold")
		}), here, ready, "[] 0", ""},
		{"no endpoint", objects(nil), here, Served{Idle: []string{"default/web"}}, "no ready endpoint that this node may use (default/web)", ""},
		{"one of two Services has endpoints", objects(nil), here, Served{Ready: []string{"default/web"}, Idle: []string{"default/db"}}, "[] 0", ""},
		{"this node", objects(func(s *v1beta1.L2AdvertisementSpec) { s.NodeSelectors = selecting("kubernetes.io/hostname", "n1") }), here, ready, "[] 0", ""},
		{"one of several node selectors", objects(func(s *v1beta1.L2AdvertisementSpec) { s.NodeSelectors = selecting("rack", "7", "rack", "1") }), here, ready, "[] 0", ""},
		{"another node", objects(func(s *v1beta1.L2AdvertisementSpec) { s.NodeSelectors = selecting("rack", "2") }), here, ready, "the nodeSelectors of L2Advertisement ad don't select this node", ""},
		{"interfaces", objects(func(s *v1beta1.L2AdvertisementSpec) { s.Interfaces = []string{"eth1", "eth0"} }), here, ready, "[eth0 eth1] 0", ""},
		{"interfaces of two advertisements", with(objects(func(s *v1beta1.L2AdvertisementSpec) { s.Interfaces = []string{"eth1"} }), "b", v1beta1.L2AdvertisementSpec{Interfaces: []string{"eth0", "eth1"}}), here, ready, "[eth0 eth1] 0", ""},
		{"all interfaces of one of two", with(objects(func(s *v1beta1.L2AdvertisementSpec) { s.Interfaces = []string{"eth1"} }), "b", v1beta1.L2AdvertisementSpec{}), here, ready, "[] 0", ""},
		{"interfaces of another node's advertisement", with(objects(func(s *v1beta1.L2AdvertisementSpec) { s.Interfaces = []string{"eth1"} }), "b", v1beta1.L2AdvertisementSpec{NodeSelectors: selecting("rack", "2")}), here, ready, "[eth1] 0", ""},
		{"the Service", objects(func(s *v1beta1.L2AdvertisementSpec) { s.ServiceSelectors = selecting("app", "web") }), here, ready, "[] 0", ""},
		{"another Service", objects(func(s *v1beta1.L2AdvertisementSpec) { s.ServiceSelectors = selecting("app", "db") }), here, ready, "no L2Advertisement or BGPAdvertisement is for pool gold and the Service", "pool silver and the Service"},
		{"preferred nodes", objects(func(s *v1beta1.L2AdvertisementSpec) {
			s.PreferredNodeSelectors = []v1beta1.PreferredNodeSelector{
				{Weight: 10, Preference: selecting("rack", "1")[0]}, {Weight: 5, Preference: selecting("kubernetes.io/hostname", "n1")[0]}, {Weight: 50, Preference: selecting("rack", "2")[0]},
			}
		}), here, ready, "[] 15", ""},
		{"preferred nodes of two advertisements", with(objects(func(s *v1beta1.L2AdvertisementSpec) {
			s.PreferredNodeSelectors = []v1beta1.PreferredNodeSelector{{Weight: 10, Preference: selecting("rack", "1")[0]}}
		}), "more", v1beta1.L2AdvertisementSpec{PreferredNodeSelectors: []v1beta1.PreferredNodeSelector{{Weight: 7, Preference: selecting("rack", "1")[0]}}}), here, ready, "[] 17", ""},
		{"preferred nodes of another Service's advertisement", with(objects(func(s *v1beta1.L2AdvertisementSpec) {
			s.PreferredNodeSelectors = []v1beta1.PreferredNodeSelector{{Weight: 10, Preference: selecting("rack", "1")[0]}}
		}), "more", v1beta1.L2AdvertisementSpec{ServiceSelectors: selecting("app", "db"), PreferredNodeSelectors: []v1beta1.PreferredNodeSelector{{Weight: 7, Preference: selecting("rack", "1")[0]}}}), here, ready, "[] 10", ""},
		{"preferred nodes, of which none may", objects(func(s *v1beta1.L2AdvertisementSpec) {
			s.NodeSelectors = selecting("rack", "2")
			s.PreferredNodeSelectors = []v1beta1.PreferredNodeSelector{{Weight: 10, Preference: selecting("rack", "1")[0]}}
		}), here, ready, "don't select this node", ""},
		{"a node that must not", objects(nil), Node{Unfit: "the node is about to be deleted"}, ready, "the node is about to be deleted", ""},
		{"a selector that makes no sense selects nothing", objects(func(s *v1beta1.L2AdvertisementSpec) {
			s.NodeSelectors = []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Likes"}}}}
		}), here, ready, "don't select this node", ""},
	}
	gold, silver, v6, outside := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("203.0.113.1")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config, _ := Read(test.objects)
			plan := Decide(config, test.node, map[netip.Addr]Served{gold: test.served, silver: test.served, v6: test.served, outside: test.served},
				func(string) Service { return Service{Labels: labels.Set{"app": "web"}} })
			text := func(a netip.Addr) string {
				if why := plan.WhyNot[a]; why != "" {
					return why
				}
				return fmt.Sprintf("%v %d", plan.L2[a].Interfaces, plan.L2[a].Weight)
			}
			if test.silver == "" {
				test.silver = test.want
			}
			for a, want := range map[netip.Addr]string{gold: test.want, v6: test.want, silver: test.silver} {
				if got := text(a); !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", a, got, want)
				}
			}
			if _, ok := plan.L2[outside]; ok || plan.WhyNot[outside] != "" {
				t.Error("an address of no pool is in the plan")
			}
		})
	}
}

func TestFaults(t *testing.T) {
	o := with(objects(nil), "broken", v1beta1.L2AdvertisementSpec{
		IPAddressPools: []string{"bronze"},
		NodeSelectors:  []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Likes"}}}},
	})
	o.RawFRR = true
	_, faults := Read(o)
	want := []string{
		`L2Advertisement broken: spec.nodeSelectors[0]: "Likes" is not a valid label selector operator`,
		"L2Advertisement broken: spec.ipAddressPools: there is no IPAddressPool bronze",
		"ConfigMap bgpextras: raw FRR configuration is not used",
	}
	if len(faults) != len(want) {
		t.Fatalf("faults %q", faults)
	}
	for i := range want {
		if !strings.HasPrefix(faults[i], want[i]) {
			t.Errorf("fault %q, want %q", faults[i], want[i])
		}
	}
}

func TestBoth(t *testing.T) {
	a, b, c := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	now := map[netip.Addr]Served{a: {Ready: []string{"d/x", "d/y"}}, b: {Ready: []string{"d/x"}}}
	next := map[netip.Addr]Served{a: {Ready: []string{"d/y"}, Idle: []string{"d/x"}}, c: {Ready: []string{"d/x"}}}
	got := Both(now, next)
	if len(got) != 1 || !slices.Equal(got[a].Ready, []string{"d/y"}) || !slices.Equal(got[a].Idle, []string{"d/x"}) {
		t.Errorf("in force and to stay: %v", got)
	}
}

// What MetalLB's CRDs accept beside our own must not make Read fail.
func TestEmpty(t *testing.T) {
	config, faults := Read(Objects{})
	plan := Decide(config, Node{}, map[netip.Addr]Served{netip.MustParseAddr("192.0.2.1"): {}}, func(string) Service { return Service{} })
	if len(faults)+len(plan.L2)+len(plan.WhyNot) > 0 {
		t.Errorf("faults %v, plan %v", faults, plan)
	}
}

// TestStandBy: a node listens wherever it may announce an address later.
func TestStandBy(t *testing.T) {
	here := Node{Labels: labels.Set{"rack": "1"}}
	first := []string{"192.0.2.0", "192.0.2.128", "2001:db8::"}
	tests := []struct {
		name    string
		objects Objects
		node    Node
		want    string
	}{
		{"everything", objects(nil), here, fmt.Sprint(first, " []")},
		{"no advertisement", Objects{Pools: objects(nil).Pools}, here, "[] "},
		{"one pool", objects(func(s *v1beta1.L2AdvertisementSpec) { s.IPAddressPools = []string{"silver"} }), here, "[192.0.2.128] []"},
		{"whatever the Service", objects(func(s *v1beta1.L2AdvertisementSpec) { s.ServiceSelectors = selecting("app", "web") }), here, fmt.Sprint(first, " []")},
		{"another node", objects(func(s *v1beta1.L2AdvertisementSpec) { s.NodeSelectors = selecting("rack", "2") }), here, "[] "},
		{"a node that may announce nothing", objects(nil), Node{Unfit: "it is drained"}, "[] "},
		{"interfaces", with(objects(func(s *v1beta1.L2AdvertisementSpec) { s.Interfaces = []string{"eth1", "eth0"} }), "b", v1beta1.L2AdvertisementSpec{Interfaces: []string{"eth0"}}), here, fmt.Sprint(first, " [eth0 eth1]")},
		{"interfaces, and all", with(objects(func(s *v1beta1.L2AdvertisementSpec) { s.Interfaces = []string{"eth1"} }), "b", v1beta1.L2AdvertisementSpec{}), here, fmt.Sprint(first, " []")},
	}
	for _, test := range tests {
		c, problems := Read(test.objects)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		var addresses []string
		interfaces := ""
		for a, p := range StandBy(c, test.node) {
			addresses = append(addresses, a.String())
			interfaces = fmt.Sprint(p.Interfaces)
		}
		slices.Sort(addresses)
		if got := fmt.Sprint(addresses, " ", interfaces); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	external := objects(nil)
	external.L2Advertisements["ad"].Annotations = map[string]string{AnnotationAnnounce: "external-ips"}
	c, _ := Read(external)
	if got := StandBy(c, here); len(got) != 2 {
		t.Errorf("external IPs: %v", got)
	}
}
