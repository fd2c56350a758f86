package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
)

// bgpObjects have two routers, one reached by IPv4 and one by IPv6, and one
// advertisement of everything.
func bgpObjects() Objects {
	o := objects(nil)
	o.L2Advertisements = nil
	o.BGPPeers = map[string]*v1beta2.BGPPeer{}
	addPeer(o, "four", v1beta2.BGPPeerSpec{MyASN: 64512, ASN: 64512, Address: "198.51.100.1"})
	addPeer(o, "six", v1beta2.BGPPeerSpec{MyASN: 64512, ASN: 64513, Address: "2001:db8:ffff::1"})
	o.BGPAdvertisements = map[string]*v1beta1.BGPAdvertisement{}
	o.Communities = map[string]*v1beta1.Community{}
	advertise(o, "ad", v1beta1.BGPAdvertisementSpec{})
	return o
}

func addPeer(o Objects, name string, s v1beta2.BGPPeerSpec) {
	o.BGPPeers[name] = &v1beta2.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "metallb-system"}, Spec: s}
}

func advertise(o Objects, name string, s v1beta1.BGPAdvertisementSpec) {
	o.BGPAdvertisements[name] = &v1beta1.BGPAdvertisement{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: s}
}

// routesText is all routes of a plan, a line for each.
func routesText(p Plan) string {
	var lines []string
	for peer, routes := range p.Routes {
		for prefix, r := range routes {
			line := peer + " " + prefix.String()
			for name, value := range map[string]int{" pref ": int(r.LocalPref), " prepend ": r.Prepend, " weight ": r.Weight} {
				if value != 0 {
					line += fmt.Sprint(name, value)
				}
			}
			if c := r.Communities.String(); c != "" {
				line += " [" + c + "]"
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestSameRouter: two peers of a node that are one router have one session, which a router
// could not tell apart. On which nodes they are two is the node selectors' to say.
func TestSameRouter(t *testing.T) {
	one := v1beta2.BGPPeerSpec{MyASN: 64512, ASN: 64513, Address: "198.51.100.1", NodeSelectors: selecting("rack", "1")}
	tests := []struct {
		name    string
		change  func(*v1beta2.BGPPeerSpec)
		node    labels.Set
		want    string // peers
		refused bool
	}{
		{"one router", func(*v1beta2.BGPPeerSpec) {}, labels.Set{"rack": "1"}, "[a]", true},
		{"with another own ASN", func(s *v1beta2.BGPPeerSpec) { s.MyASN = 64514 }, labels.Set{"rack": "1"}, "[a]", true},
		{"on other nodes", func(s *v1beta2.BGPPeerSpec) { s.NodeSelectors = selecting("rack", "2") }, labels.Set{"rack": "1"}, "[a]", false},
		{"a node that both select", func(s *v1beta2.BGPPeerSpec) { s.NodeSelectors = selecting("zone", "z") }, labels.Set{"rack": "1", "zone": "z"}, "[a]", true},
		{"another address", func(s *v1beta2.BGPPeerSpec) { s.Address = "198.51.100.2" }, labels.Set{"rack": "1"}, "[a b]", false},
		{"another port", func(s *v1beta2.BGPPeerSpec) { s.Port = 1179 }, labels.Set{"rack": "1"}, "[a b]", false},
		{"from another address of the node", func(s *v1beta2.BGPPeerSpec) { s.SrcAddress = "198.51.100.9" }, labels.Set{"rack": "1"}, "[a b]", false},
		{"in another VRF", func(s *v1beta2.BGPPeerSpec) { s.VRFName = "red" }, labels.Set{"rack": "1"}, "[a b]", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := Objects{BGPPeers: map[string]*v1beta2.BGPPeer{}}
			two := one
			test.change(&two)
			addPeer(o, "a", one)
			addPeer(o, "b", two)
			config, problems := Read(o)
			plan := Decide(config, Node{Labels: test.node}, nil, func(string) Service { return Service{} })
			var names []string
			for _, p := range plan.Peers {
				names = append(names, p.Name)
			}
			if got := fmt.Sprint(names); got != test.want || len(problems) != 0 {
				t.Errorf("peers %s, problems %q, want %s", got, problems, test.want)
			}
			if text := strings.Join(plan.Faults, "; "); strings.Contains(text, "BGPPeer b: is the router of BGPPeer a") != test.refused {
				t.Errorf("faults %q", plan.Faults)
			}
		})
	}
}

func TestDecideBGP(t *testing.T) {
	web := Service{Labels: labels.Set{"app": "web"}}
	ready := Served{Ready: []string{"default/web"}}
	gold, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	silver := netip.MustParseAddr("192.0.2.200")
	tests := []struct {
		name    string
		change  func(Objects)
		service Service
		served  Served
		want    string // of gold and v6
		why     string // of gold, if it isn't announced
	}{
		{name: "each session carries its own family", want: "four 192.0.2.1/32\nsix 2001:db8::1/128"},
		{name: "both families in one session", change: func(o Objects) { o.BGPPeers["six"].Spec.DualStackAddressFamily = true },
			want: "four 192.0.2.1/32\nsix 192.0.2.1/32\nsix 2001:db8::1/128"},
		{name: "a peer without an address carries both", change: func(o Objects) {
			o.BGPPeers["six"].Spec.Address, o.BGPPeers["six"].Spec.Interface = "", "eth1"
		}, want: "four 192.0.2.1/32\nsix 192.0.2.1/32\nsix 2001:db8::1/128"},
		{name: "peers by name", change: func(o Objects) { o.BGPAdvertisements["ad"].Spec.Peers = []string{"six"} },
			want: "six 2001:db8::1/128", why: "no BGPPeer of this node carries IPv4"},
		{name: "a peer of other nodes", change: func(o Objects) { o.BGPPeers["four"].Spec.NodeSelectors = selecting("rack", "2") },
			want: "six 2001:db8::1/128", why: "no BGPPeer of this node carries IPv4"},
		{name: "an advertisement of other nodes", change: func(o Objects) { o.BGPAdvertisements["ad"].Spec.NodeSelectors = selecting("rack", "2") },
			why: "the nodeSelectors of BGPAdvertisement ad don't select this node"},
		{name: "another pool", change: func(o Objects) { o.BGPAdvertisements["ad"].Spec.IPAddressPools = []string{"silver"} },
			why: "no L2Advertisement or BGPAdvertisement is for pool gold"},
		{name: "a pool by label", change: func(o Objects) {
			o.BGPAdvertisements["ad"].Spec.IPAddressPoolSelectors = selecting("tier", "gold")
		}, want: "four 192.0.2.1/32\nsix 2001:db8::1/128"},
		{name: "another Service", change: func(o Objects) { o.BGPAdvertisements["ad"].Spec.ServiceSelectors = selecting("app", "db") },
			why: "no L2Advertisement or BGPAdvertisement is for pool gold"},
		{name: "no endpoint", served: Served{Idle: []string{"default/web"}}, why: "no ready endpoint"},
		{name: "aggregated", change: func(o Objects) {
			o.BGPAdvertisements["ad"].Spec.AggregationLength, o.BGPAdvertisements["ad"].Spec.AggregationLengthV6 = ptr.To[int32](26), ptr.To[int32](64)
		}, want: "four 192.0.2.0/26\nsix 2001:db8::/64"},
		{name: "more than the pool has", change: func(o Objects) { o.BGPAdvertisements["ad"].Spec.AggregationLength = ptr.To[int32](24) },
			want: "six 2001:db8::1/128", why: "would announce 192.0.2.0/24, which pool gold does not have as a whole"},
		{name: "two lengths", change: func(o Objects) {
			advertise(o, "whole", v1beta1.BGPAdvertisementSpec{AggregationLength: ptr.To[int32](25), Peers: []string{"four"}, Communities: []string{"65000:1"}})
		}, want: "four 192.0.2.0/25 [65000:1]\nfour 192.0.2.1/32\nsix 2001:db8::1/128"},
		{name: "the communities of two advertisements", change: func(o Objects) {
			o.Communities["c"] = &v1beta1.Community{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1beta1.CommunitySpec{
				Communities: []v1beta1.CommunityAlias{{Name: "far", Value: "large:1:2:3"}}}}
			o.BGPAdvertisements["ad"].Spec.Communities = []string{"65000:2", "far"}
			advertise(o, "more", v1beta1.BGPAdvertisementSpec{Peers: []string{"four"}, Communities: []string{"65000:1", "65000:2"}, LocalPref: 200})
		}, want: "four 192.0.2.1/32 pref 200 [65000:1 65000:2 large:1:2:3]\nsix 2001:db8::1/128 [65000:2 large:1:2:3]"},
		{name: "an unknown community", change: func(o Objects) { o.BGPAdvertisements["ad"].Spec.Communities = []string{"far"} },
			why: "no L2Advertisement or BGPAdvertisement"},
		{name: "local endpoints are the weight", served: Served{Ready: ready.Ready, Local: 3},
			want: "four 192.0.2.1/32 weight 3\nsix 2001:db8::1/128 weight 3"},
		{name: "annotations", service: Service{Annotations: map[string]string{AnnotationPrepend: "2", AnnotationCommunities: "65000:7, large:1:1:1"}},
			want: "four 192.0.2.1/32 prepend 2 [65000:7 large:1:1:1]\nsix 2001:db8::1/128 prepend 2 [65000:7 large:1:1:1]"},
		{name: "annotations that make no sense", service: Service{Annotations: map[string]string{AnnotationPrepend: "-1", AnnotationCommunities: "no:such"}},
			want: "four 192.0.2.1/32\nsix 2001:db8::1/128"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := bgpObjects()
			if test.change != nil {
				test.change(o)
			}
			if test.service.Labels == nil {
				test.service.Labels = web.Labels
			}
			if len(test.served.Ready)+len(test.served.Idle) == 0 {
				test.served = ready
			}
			config, _ := Read(o)
			plan := Decide(config, Node{Labels: labels.Set{"rack": "1"}}, map[netip.Addr]Served{gold: test.served, v6: test.served},
				func(string) Service { return test.service })
			if got := routesText(plan); got != test.want {
				t.Errorf("routes:\n%s\nwant:\n%s", got, test.want)
			}
			if why := plan.WhyNot[gold]; (test.why == "") != (why == "") || !strings.Contains(why, test.why) {
				t.Errorf("why not %q, want %q", why, test.why)
			}
			if bad := test.service.Annotations[AnnotationPrepend] == "-1"; bad != (len(plan.Problems["default/web"]) == 2) {
				t.Errorf("problems %v", plan.Problems)
			}
		})
	}
	config, _ := Read(bgpObjects())
	plan := Decide(config, Node{Unfit: "drained"}, map[netip.Addr]Served{silver: ready}, func(string) Service { return web })
	if len(plan.Peers) != 2 || len(plan.Routes) != 0 {
		t.Errorf("a drained node must hold its sessions and announce nothing: %v", plan)
	}
}

// An address may be announced in both ways.
func TestBothWays(t *testing.T) {
	o := bgpObjects()
	o.L2Advertisements = objects(nil).L2Advertisements
	config, _ := Read(o)
	a := netip.MustParseAddr("192.0.2.1")
	plan := Decide(config, Node{}, map[netip.Addr]Served{a: {Ready: []string{"d/w"}}}, func(string) Service { return Service{} })
	if _, ok := plan.L2[a]; !ok || len(plan.BGP[a].Peers) != 1 {
		t.Errorf("plan %+v", plan)
	}
}

func TestPeers(t *testing.T) {
	good := v1beta2.BGPPeerSpec{MyASN: 64512, ASN: 64513, Address: "198.51.100.1"}
	tests := []struct {
		name    string
		change  func(*v1beta2.BGPPeerSpec)
		problem string // "" if there is none
		refused bool
	}{
		{"good", func(*v1beta2.BGPPeerSpec) {}, "", false},
		{"no ASN", func(s *v1beta2.BGPPeerSpec) { s.ASN = 0 }, "spec.peerASN: either this or spec.dynamicASN", true},
		{"two ASNs", func(s *v1beta2.BGPPeerSpec) { s.DynamicASN = "external" }, "spec.dynamicASN: can't be given together", true},
		{"any other ASN", func(s *v1beta2.BGPPeerSpec) { s.ASN, s.DynamicASN = 0, "external" }, "", false},
		{"a third kind of ASN", func(s *v1beta2.BGPPeerSpec) { s.ASN, s.DynamicASN = 0, "some" }, `"some": must be internal or external`, true},
		{"no own ASN", func(s *v1beta2.BGPPeerSpec) { s.MyASN = 0 }, "spec.myASN", true},
		{"no address", func(s *v1beta2.BGPPeerSpec) { s.Address = "" }, "spec.peerAddress: either", true},
		{"no such address", func(s *v1beta2.BGPPeerSpec) { s.Address = "router" }, `spec.peerAddress: "router" is no IP address`, true},
		{"address and interface", func(s *v1beta2.BGPPeerSpec) { s.Interface = "eth0" }, "spec.interface", true},
		{"source of another family", func(s *v1beta2.BGPPeerSpec) { s.SrcAddress = "2001:db8::1" }, "spec.sourceAddress", true},
		{"router ID", func(s *v1beta2.BGPPeerSpec) { s.RouterID = "2001:db8::1" }, "spec.routerID", true},
		{"hold time", func(s *v1beta2.BGPPeerSpec) { s.HoldTime = &metav1.Duration{Duration: time.Second} }, "spec.holdTime: 1s", true},
		{"no hold time", func(s *v1beta2.BGPPeerSpec) { s.HoldTime = &metav1.Duration{} }, "", false},
		{"keepalive", func(s *v1beta2.BGPPeerSpec) {
			s.HoldTime, s.KeepaliveTime = &metav1.Duration{Duration: 9 * time.Second}, &metav1.Duration{Duration: time.Minute}
		}, "spec.keepaliveTime", true},
		{"multi-hop iBGP", func(s *v1beta2.BGPPeerSpec) { s.ASN, s.EBGPMultiHop = 64512, true }, "spec.ebgpMultiHop", true},
		{"password", func(s *v1beta2.BGPPeerSpec) { s.PasswordSecret.Name = "known" }, "", false},
		{"two passwords", func(s *v1beta2.BGPPeerSpec) { s.Password, s.PasswordSecret.Name = "x", "known" }, "spec.passwordSecret: can't", true},
		{"no such Secret", func(s *v1beta2.BGPPeerSpec) { s.PasswordSecret.Name = "gone" }, "there is no Secret gone", true},
		{"Secret elsewhere", func(s *v1beta2.BGPPeerSpec) { s.PasswordSecret.Name, s.PasswordSecret.Namespace = "known", "default" }, "namespace: must be metallb-system", true},
		{"BFD", func(s *v1beta2.BGPPeerSpec) { s.BFDProfile = "fast" }, "", false},
		{"no such profile", func(s *v1beta2.BGPPeerSpec) { s.BFDProfile = "gone" }, "there is no BFDProfile gone; the session is held without BFD", false},
		{"a profile with a fault", func(s *v1beta2.BGPPeerSpec) { s.BFDProfile = "bad" }, "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := Objects{BGPPeers: map[string]*v1beta2.BGPPeer{}, Passwords: map[string]string{"known": "secret"}, BFDProfiles: map[string]*v1beta1.BFDProfile{
				"fast": {ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Spec: v1beta1.BFDProfileSpec{TransmitInterval: ptr.To[uint32](50), EchoMode: ptr.To(true)}},
				"bad":  {ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: v1beta1.BFDProfileSpec{DetectMultiplier: ptr.To[uint32](1)}},
			}}
			s := good
			test.change(&s)
			addPeer(o, "tor", s)
			config, problems := Read(o)
			problems = slices.DeleteFunc(problems, func(p string) bool {
				return p == "BFDProfile bad: spec.detectMultiplier: 1: must be from 2 to 255; sessions are held without BFD"
			})
			if text := strings.Join(problems, "; "); (test.problem == "") != (text == "") || !strings.Contains(text, test.problem) {
				t.Errorf("problems %q, want %q", problems, test.problem)
			}
			if (len(config.peers) == 0) != test.refused {
				t.Errorf("peers %v", config.peers)
			}
			if len(config.Notes) != 1 {
				t.Errorf("notes %q, want one about echoMode", config.Notes)
			}
		})
	}
}

// TestEchoes: what a profile says of echo packets has no effect, and that is told.
func TestEchoes(t *testing.T) {
	for field, spec := range map[string]v1beta1.BFDProfileSpec{
		"echoInterval": {EchoInterval: ptr.To[uint32](50)}, "echoMode": {EchoMode: ptr.To(true)}, "": {EchoMode: ptr.To(false)},
	} {
		config, faults := Read(Objects{BFDProfiles: map[string]*v1beta1.BFDProfile{"p": {ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec}}})
		if told := strings.Join(config.Notes, "; "); len(faults) > 0 || (field == "") != (told == "") || !strings.Contains(told, field) {
			t.Errorf("%q: notes %q, faults %q", field, told, faults)
		}
	}
}

func FuzzCommunities(f *testing.F) {
	for _, text := range []string{"65000:1", "large:1:2:3", "no-export", "large:", ":", "1:2:3", "99999:1", "large:4294967296:1:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := communities([]string{text}, nil)
		if err != nil {
			return
		}
		again, err := communities(strings.Fields(list.String()), nil)
		if err != nil || compareCommunities(list, again) != 0 {
			t.Errorf("%q is read as %v and again as %v: %v", text, list, again, err)
		}
	})
}
