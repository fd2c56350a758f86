package announce

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

// What advertisements with the annotation are for, and what they aren't for.
func TestAnnounceAnnotation(t *testing.T) {
	const (
		pooled   = "four 192.0.2.1/32"
		external = "four 203.0.113.1/32"
		cluster  = "four 10.96.0.7/32\nsix fd00:96::7/128"
		ranges   = "four 10.96.0.0/16\nsix fd00:96::/112"
		pods     = "four 10.244.1.0/24\nsix fd00:244:1::/64"
	)
	tests := []struct {
		annotation string
		change     func(*v1beta1.BGPAdvertisement)
		unfit      string
		want       []string
		fault      string
	}{
		{annotation: "pools", want: []string{pooled}},
		{annotation: "external-ips", want: []string{external}},
		{annotation: "cluster-ips", want: []string{cluster}},
		{annotation: "service-ranges", want: []string{ranges}},
		{annotation: "pod-ranges", want: []string{pods}},
		{annotation: "pod-ranges, pools", want: []string{pooled, pods}},
		{annotation: "pod-ranges,service-ranges,cluster-ips,external-ips", unfit: "drained", want: []string{pods}},
		{annotation: "cluster-ips,pod-ranges", want: []string{pods}, change: func(a *v1beta1.BGPAdvertisement) {
			a.Spec.ServiceSelectors = selecting("app", "other")
		}},
		{annotation: "cluster-ips,pod-ranges", change: func(a *v1beta1.BGPAdvertisement) { a.Spec.NodeSelectors = selecting("rack", "2") }},
		{annotation: "service-ranges", want: []string{"six fd00:96::/112"}, change: func(a *v1beta1.BGPAdvertisement) { a.Spec.Peers = []string{"six"} }},
		{annotation: "service-ranges", want: []string{"four 10.96.0.0/16 pref 7 [65000:1]\nsix fd00:96::/112 pref 7 [65000:1]"}, change: func(a *v1beta1.BGPAdvertisement) {
			a.Spec.LocalPref, a.Spec.Communities = 7, []string{"65000:1"}
		}},
		{annotation: "pod-ranges,everything", fault: `annotation fairway.dev/announce: "everything": must be a list of cluster-ips, external-ips, pod-ranges, pools, service-ranges`},
		{annotation: "", fault: `annotation fairway.dev/announce: "": must be a list`},
	}
	prefixes := func(list ...string) (all []netip.Prefix) {
		for _, text := range list {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	inForce := map[netip.Addr]Served{
		netip.MustParseAddr("192.0.2.1"):   {Ready: []string{"d/web"}},
		netip.MustParseAddr("203.0.113.1"): {Ready: []string{"d/web"}, ExternalIP: true},
		netip.MustParseAddr("10.96.0.7"):   {Ready: []string{"d/web"}, ClusterIP: true},
		netip.MustParseAddr("fd00:96::7"):  {Ready: []string{"d/web"}, ClusterIP: true},
		netip.MustParseAddr("10.96.0.8"):   {Idle: []string{"d/idle"}, ClusterIP: true},
	}
	for _, test := range tests {
		t.Run(test.annotation, func(t *testing.T) {
			o := bgpObjects()
			ad := o.BGPAdvertisements["ad"]
			ad.Annotations = map[string]string{AnnotationAnnounce: test.annotation}
			if test.change != nil {
				test.change(ad)
			}
			config, faults := Read(o)
			if got := strings.Join(faults, "; "); (test.fault == "") != (got == "") || !strings.Contains(got, test.fault) {
				t.Errorf("faults %q, want %q", got, test.fault)
			}
			node := Node{
				Labels: labels.Set{"rack": "1"}, Unfit: test.unfit,
				ServiceRanges: prefixes("10.96.0.0/16", "fd00:96::/112"), PodRanges: prefixes("10.244.1.0/24", "fd00:244:1::/64"),
			}
			served := map[netip.Addr]Served{}
			for a, s := range inForce { // as the tracker has them
				if !s.ClusterIP || config.ClusterIPs() {
					served[a] = s
				}
			}
			plan := Decide(config, node, served, func(string) Service { return Service{Labels: labels.Set{"app": "web"}} })
			wanted := map[string]bool{}
			for _, w := range test.want {
				for line := range strings.SplitSeq(w, "\n") {
					wanted[line] = true
				}
			}
			for line := range strings.SplitSeq(routesText(plan), "\n") {
				if line != "" && !wanted[line] {
					t.Errorf("%s is announced", line)
				}
				delete(wanted, line)
			}
			for line := range wanted {
				t.Errorf("%s is not announced; why not: %v", line, plan.WhyNot)
			}
		})
	}
}

// External IPs on layer 2, and what can't be announced there.
func TestAnnounceAnnotationOnLayer2(t *testing.T) {
	external, pooled := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("192.0.2.1")
	served := map[netip.Addr]Served{external: {Ready: []string{"d/web"}, ExternalIP: true}, pooled: {Ready: []string{"d/web"}}}
	for annotation, want := range map[string]string{
		"": "192.0.2.1", "pools": "192.0.2.1", "external-ips": "203.0.113.1", "external-ips,pools": "192.0.2.1 203.0.113.1", "pod-ranges": "",
	} {
		o := objects(nil)
		o.L2Advertisements["ad"] = &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "ad"}}
		if annotation != "" {
			o.L2Advertisements["ad"].Annotations = map[string]string{AnnotationAnnounce: annotation}
		}
		config, faults := Read(o)
		if (len(faults) > 0) != (annotation == "pod-ranges") {
			t.Errorf("%q: faults %q", annotation, faults)
		}
		plan := Decide(config, Node{}, served, func(string) Service { return Service{} })
		for _, a := range []netip.Addr{external, pooled} {
			if _, ok := plan.L2[a]; ok != strings.Contains(want, a.String()) {
				t.Errorf("%q: %s is announced: %v", annotation, a, ok)
			}
		}
	}
}
