package change

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// worldOf has two nodes, a Service with an address of a pool, an advertisement for all nodes, and a router.
func worldOf(edit func(*announce.Objects)) World {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	o := announce.Objects{
		Pools:            map[string]*v1beta1.IPAddressPool{"front": {ObjectMeta: named("front"), Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"192.0.2.0/28"}}}},
		L2Advertisements: map[string]*v1beta1.L2Advertisement{"all": {ObjectMeta: named("all")}},
	}
	if edit != nil {
		edit(&o)
	}
	node := func(name, rack string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": rack}}}
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}}},
	}
	return World{Objects: &explain.Objects{Services: []*corev1.Service{service}, Slices: []*discoveryv1.EndpointSlice{slice}, Nodes: []*corev1.Node{node("n1", "1"), node("n2", "2")}}, Announced: o}
}

func router(o *announce.Objects) {
	o.BGPPeers = map[string]*v1beta2.BGPPeer{"tor": {ObjectMeta: metav1.ObjectMeta{Name: "tor"}, Spec: v1beta2.BGPPeerSpec{MyASN: 64512, ASN: 64513, Address: "10.0.0.1"}}}
	o.BGPAdvertisements = map[string]*v1beta1.BGPAdvertisement{"bgp": {ObjectMeta: metav1.ObjectMeta{Name: "bgp"}}}
}

// TestAnnounced: what changes of pools, advertisements and routers mean for addresses that Services
// have.
func TestAnnounced(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(*announce.Objects)
		has           []string
	}{
		"nothing": {nil, nil, []string{"no packet and no request goes elsewhere"}},
		"other nodes": {nil, func(o *announce.Objects) {
			o.L2Advertisements["all"].Spec.NodeSelectors = []metav1.LabelSelector{{MatchLabels: map[string]string{"rack": "1"}}}
		}, []string{
			"Service shop/web\n", "~ 192.0.2.7: announced on layer 2 (n1); not announced: the nodeSelectors of L2Advertisement all don't select this node (n2); it was announced on layer 2 (every node)",
		}},
		"no advertisement": {nil, func(o *announce.Objects) { o.L2Advertisements = nil }, []string{
			"~ 192.0.2.7: not announced: no L2Advertisement or BGPAdvertisement is for pool front and the Service (every node)",
		}},
		"a pool that shrinks": {nil, func(o *announce.Objects) { o.Pools["front"].Spec.Addresses = []string{"192.0.2.8/29"} }, []string{
			"IPAddressPool front\n", "+ addresses 192.0.2.8/29", "- addresses 192.0.2.0/28",
			"! 192.0.2.7: pool front no longer has it: the Service gets another address, or none", "- 192.0.2.7: no longer announced on layer 2 (every node)",
		}},
		"a pool on another": {nil, func(o *announce.Objects) {
			o.Pools["late"] = &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"192.0.2.4-192.0.2.5"}}}
		}, []string{"IPAddressPool late\n", "! overlaps pool front"}},
		"a name of no pool": {nil, func(o *announce.Objects) { o.L2Advertisements["all"].Spec.IPAddressPools = []string{"fornt"} }, []string{
			"L2Advertisement all\n", "! spec.ipAddressPools: there is no IPAddressPool fornt",
		}},
		"a router": {nil, router, []string{
			"BGPPeer tor\n", "+ tor: a session of AS 64512 with AS 64513 at 10.0.0.1 (every node)", "announced to tor as 192.0.2.7/32",
		}},
		"no longer a router": {router, nil, []string{"- tor: no longer a session"}},
		"who asks":           {nil, func(o *announce.Objects) { o.Pools["front"].Spec.AutoAssign = new(bool) }, []string{"~ its addresses go only to Services that name it"}},
		"cluster IPs": {func(o *announce.Objects) {
			router(o)
			o.BGPAdvertisements["bgp"].Annotations = map[string]string{announce.AnnotationAnnounce: "cluster-ips"}
		}, router, []string{"- 10.96.0.7: no longer announced to tor", "announced to tor as 192.0.2.7/32"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Compare(t.Context(), Input{Before: worldOf(c.before), After: worldOf(c.after), Addresses: map[netip.Addr]string{}})
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			for _, part := range c.has {
				if !strings.Contains(text.String(), part) {
					t.Errorf("the report lacks %q:\n%s", part, &text)
				}
			}
		})
	}
}
