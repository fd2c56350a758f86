package registry

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

// rig completes Services as a server with the given CIDRs would, without one.
type rig struct{ rest *serviceREST }

func newRig(t *testing.T, cidrs ...string) rig {
	t.Helper()
	var prefixes []netip.Prefix
	for _, c := range cidrs {
		prefixes = append(prefixes, netip.MustParsePrefix(c))
	}
	a, err := allocator.New(prefixes, utilnet.PortRange{Base: 30000, Size: 2768}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rig{&serviceREST{allocator: a}}
}

// write is what happens to a Service between decoding and storage.
func (r rig) write(svc, old *corev1.Service) (*corev1.Service, error) {
	svc = svc.DeepCopy()
	if old != nil {
		old = old.DeepCopy()
	}
	scheme := runtime.NewScheme()
	if err := upstream.RegisterDefaults(scheme); err != nil {
		return nil, err
	}
	scheme.Default(svc)
	req := &request{plan: r.rest.allocator.Plan()}
	defer req.plan.Release()
	err := r.rest.begin(context.WithValue(context.Background(), requestKey{}, req), svc, old, nil)
	return svc, err
}

const (
	v4CIDR = "10.96.0.0/16"
	v6CIDR = "fd00:96::/112"
)

func single() *corev1.IPFamilyPolicy  { return policy(corev1.IPFamilyPolicySingleStack) }
func prefer() *corev1.IPFamilyPolicy  { return policy(corev1.IPFamilyPolicyPreferDualStack) }
func require() *corev1.IPFamilyPolicy { return policy(corev1.IPFamilyPolicyRequireDualStack) }

func policy(p corev1.IPFamilyPolicy) *corev1.IPFamilyPolicy { return &p }

func newService(spec corev1.ServiceSpec) *corev1.Service {
	if spec.Ports == nil && spec.Type != corev1.ServiceTypeExternalName {
		spec.Ports = []corev1.ServicePort{{Port: 80}}
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: spec}
}

// TestFamiliesOnCreate follows the tables of Kubernetes' "IPv4/IPv6
// dual-stack" documentation.
func TestFamiliesOnCreate(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	selector := map[string]string{"a": "b"}
	for _, test := range []struct {
		name  string
		cidrs []string
		spec  corev1.ServiceSpec
		want  string // policy, families and number of addresses, or an error
	}{
		{"single-stack cluster", []string{v4CIDR}, corev1.ServiceSpec{}, "SingleStack [IPv4] 1"},
		{"IPv6 cluster", []string{v6CIDR}, corev1.ServiceSpec{}, "SingleStack [IPv6] 1"},
		{"dual-stack cluster", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{}, "SingleStack [IPv4] 1"},
		{"dual-stack cluster, IPv6 first", []string{v6CIDR, v4CIDR}, corev1.ServiceSpec{}, "SingleStack [IPv6] 1"},
		{"prefer on single", []string{v4CIDR}, corev1.ServiceSpec{IPFamilyPolicy: prefer()}, "PreferDualStack [IPv4] 1"},
		{"prefer on dual", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{IPFamilyPolicy: prefer()}, "PreferDualStack [IPv4 IPv6] 2"},
		{"require on single", []string{v4CIDR}, corev1.ServiceSpec{IPFamilyPolicy: require()}, "this cluster is not configured for dual-stack services"},
		{"require on dual", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{IPFamilyPolicy: require()}, "RequireDualStack [IPv4 IPv6] 2"},
		{"the other family", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{v6}}, "SingleStack [IPv6] 1"},
		{"families turned round", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{IPFamilyPolicy: require(), IPFamilies: []corev1.IPFamily{v6}}, "RequireDualStack [IPv6 IPv4] 2"},
		{"a family not there", []string{v4CIDR}, corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{v6}}, `spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`},
		{"two families, no policy", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{v4, v6}}, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"},
		{"address says the family", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{ClusterIP: "fd00:96::5"}, "SingleStack [IPv6] 1"},
		{"two addresses", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{ClusterIP: "fd00:96::5", ClusterIPs: []string{"fd00:96::5", "10.96.0.5"}, IPFamilyPolicy: prefer()}, "PreferDualStack [IPv6 IPv4] 2"},
		{"two addresses, no policy", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{ClusterIP: "fd00:96::5", ClusterIPs: []string{"fd00:96::5", "10.96.0.5"}}, "when multiple cluster IPs are specified"},
		{"address of a family not there", []string{v4CIDR}, corev1.ServiceSpec{ClusterIP: "fd00:96::5"}, "spec.clusterIPs[0]: Invalid value: [\"fd00:96::5\"]: IPv6 is not configured on this cluster"},
		{"headless", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{ClusterIP: "None", Selector: selector}, "SingleStack [IPv4] 1"},
		{"headless dual", []string{v4CIDR, v6CIDR}, corev1.ServiceSpec{ClusterIP: "None", Selector: selector, IPFamilyPolicy: prefer()}, "PreferDualStack [IPv4 IPv6] 1"},
		{"headless without selector", []string{v4CIDR}, corev1.ServiceSpec{ClusterIP: "None"}, "RequireDualStack [IPv4 IPv6] 1"},
		{"headless without selector, single", []string{v4CIDR}, corev1.ServiceSpec{ClusterIP: "None", IPFamilyPolicy: single()}, "SingleStack [IPv4] 1"},
		{"ExternalName", []string{v4CIDR}, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.b"}, "none [] 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			svc, err := newRig(t, test.cidrs...).write(newService(test.spec), nil)
			checkFamilies(t, svc, err, test.want)
		})
	}
}

func checkFamilies(t *testing.T, svc *corev1.Service, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	} else {
		p := "none"
		if svc.Spec.IPFamilyPolicy != nil {
			p = string(*svc.Spec.IPFamilyPolicy)
		}
		got = fmt.Sprintf("%s %v %d", p, svc.Spec.IPFamilies, len(svc.Spec.ClusterIPs))
		if len(svc.Spec.ClusterIPs) > 0 && svc.Spec.ClusterIPs[0] != svc.Spec.ClusterIP {
			t.Errorf("clusterIP %q is not the first of %v", svc.Spec.ClusterIP, svc.Spec.ClusterIPs)
		}
	}
	if !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestFamiliesOnUpdate: up to two families and down to one, said or not.
func TestFamiliesOnUpdate(t *testing.T) {
	for _, test := range []struct {
		name   string
		before corev1.ServiceSpec
		change func(*corev1.ServiceSpec)
		want   string
	}{
		{"up", corev1.ServiceSpec{}, func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = require() }, "RequireDualStack [IPv4 IPv6] 2"},
		{"up if possible", corev1.ServiceSpec{}, func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = prefer() }, "PreferDualStack [IPv4 IPv6] 2"},
		{"down by policy", corev1.ServiceSpec{IPFamilyPolicy: require()}, func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = single() }, "SingleStack [IPv4] 1"},
		{"down in full", corev1.ServiceSpec{IPFamilyPolicy: require()}, func(s *corev1.ServiceSpec) {
			s.IPFamilyPolicy, s.IPFamilies, s.ClusterIPs = single(), s.IPFamilies[:1], s.ClusterIPs[:1]
		}, "SingleStack [IPv4] 1"},
		{"down without saying so", corev1.ServiceSpec{IPFamilyPolicy: require()}, func(s *corev1.ServiceSpec) { s.ClusterIPs = s.ClusterIPs[:1] },
			"must be 'SingleStack' to release the secondary cluster IP"},
		{"family dropped without saying so", corev1.ServiceSpec{IPFamilyPolicy: prefer()}, func(s *corev1.ServiceSpec) { s.IPFamilies = s.IPFamilies[:1] },
			"must be 'SingleStack' to release the secondary IP family"},
		{"change of the first", corev1.ServiceSpec{}, func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
			"expected an IPv6 value as indicated by `ipFamilies[0]`"},
		{"nothing said", corev1.ServiceSpec{IPFamilyPolicy: require()}, func(s *corev1.ServiceSpec) {
			s.IPFamilyPolicy, s.IPFamilies, s.ClusterIP, s.ClusterIPs = nil, nil, "", nil
		}, "RequireDualStack [IPv4 IPv6] 2"},
		{"prefer untouched", corev1.ServiceSpec{IPFamilyPolicy: prefer()}, func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }, "PreferDualStack [IPv4 IPv6] 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, v4CIDR, v6CIDR)
			old, err := r.write(newService(test.before), nil)
			if err != nil {
				t.Fatal(err)
			}
			svc := old.DeepCopy()
			svc.ResourceVersion, old.ResourceVersion = "1", "1"
			test.change(&svc.Spec)
			svc, err = r.write(svc, old)
			checkFamilies(t, svc, err, test.want)
			if err == nil && svc.Spec.ClusterIP != old.Spec.ClusterIP {
				t.Errorf("the address changed from %s to %s", old.Spec.ClusterIP, svc.Spec.ClusterIP)
			}
		})
	}
}

// TestTypeChanges changes a Service of each type into each other, as a client
// does that reads it, sets the type and writes it back, and as one does that
// applies a manifest without any of what the server had filled in.
func TestTypeChanges(t *testing.T) {
	manifests := map[string]corev1.ServiceSpec{
		"ClusterIP":         {Type: corev1.ServiceTypeClusterIP},
		"Headless":          {Type: corev1.ServiceTypeClusterIP, ClusterIP: "None"},
		"NodePort":          {Type: corev1.ServiceTypeNodePort},
		"LoadBalancer":      {Type: corev1.ServiceTypeLoadBalancer},
		"LoadBalancerLocal": {Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal},
		"ExternalName":      {Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
	}
	for from, before := range manifests {
		for to, after := range manifests {
			for _, way := range []string{"read and write back", "apply"} {
				t.Run(from+" to "+to+", "+way, func(t *testing.T) {
					r := newRig(t, v4CIDR, v6CIDR)
					before.Selector = map[string]string{"a": "b"}
					before.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
					after.Selector, after.Ports = before.Selector, []corev1.ServicePort{{Name: "http", Port: 80}}
					old, err := r.write(newService(before), nil)
					if err != nil {
						t.Fatal(err)
					}
					svc := newService(after)
					if way == "read and write back" {
						svc = old.DeepCopy()
						svc.Spec.Type, svc.Spec.ExternalName = after.Type, after.ExternalName
						if after.ExternalTrafficPolicy != "" {
							svc.Spec.ExternalTrafficPolicy = after.ExternalTrafficPolicy
						}
					}
					old.ResourceVersion, svc.ResourceVersion = "1", "1"
					headless := from == "Headless" || to == "Headless"
					svc, err = r.write(svc, old)
					if headless && from != to && to != "ExternalName" && (way == "apply" || to != "ClusterIP") && !(from == "ExternalName" && way == "apply") {
						// Kubernetes keeps addresses for life, "None" too.
						checkHeadlessChange(t, from, to, way, svc, err)
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					checkType(t, old, svc)
				})
			}
		}
	}
}

func checkHeadlessChange(t *testing.T, from, to, way string, svc *corev1.Service, err error) {
	t.Helper()
	switch {
	case to == "ClusterIP": // a manifest that doesn't say None keeps it
		if err != nil || svc.Spec.ClusterIP != corev1.ClusterIPNone {
			t.Errorf("clusterIP %q, error %v; want None kept", svc.Spec.ClusterIP, err)
		}
	case way == "read and write back" && to == "Headless":
		if err != nil {
			t.Error(err)
		}
	case err == nil || !strings.Contains(err.Error(), "may not"):
		t.Errorf("from %s to %s: error %v, want a refusal", from, to, err)
	}
}

func checkType(t *testing.T, old, svc *corev1.Service) {
	t.Helper()
	spec := &svc.Spec
	isName := spec.Type == corev1.ServiceTypeExternalName
	if isName != (len(spec.ClusterIPs) == 0) || isName != (spec.ClusterIP == "") || isName != (spec.IPFamilyPolicy == nil) || isName != (len(spec.IPFamilies) == 0) {
		t.Errorf("addresses %v, families %v, policy %v", spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy)
	}
	if !isName && len(old.Spec.ClusterIPs) > 0 && !slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) {
		t.Errorf("addresses %v, were %v", spec.ClusterIPs, old.Spec.ClusterIPs)
	}
	for i, p := range spec.Ports {
		if (p.NodePort != 0) != needsNodePort(svc) {
			t.Errorf("port %d has node port %d", i, p.NodePort)
		}
		if needsNodePort(svc) && needsNodePort(old) && p.NodePort != old.Spec.Ports[i].NodePort {
			t.Errorf("node port %d, was %d", p.NodePort, old.Spec.Ports[i].NodePort)
		}
	}
	if (spec.HealthCheckNodePort != 0) != needsHealthCheckNodePort(svc) {
		t.Errorf("health check node port %d", spec.HealthCheckNodePort)
	}
	if (spec.ExternalTrafficPolicy != "") != externallyAccessible(spec) {
		t.Errorf("external traffic policy %q", spec.ExternalTrafficPolicy)
	}
	if (spec.AllocateLoadBalancerNodePorts != nil) != (spec.Type == corev1.ServiceTypeLoadBalancer) {
		t.Errorf("allocateLoadBalancerNodePorts %v", spec.AllocateLoadBalancerNodePorts)
	}
}

// TestNodePortsOnUpdate: what a client leaves out stays; what it says counts.
func TestNodePortsOnUpdate(t *testing.T) {
	r := newRig(t, v4CIDR)
	old, err := r.write(newService(corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{
		{Name: "a", Port: 80, NodePort: 30001}, {Name: "b", Port: 81, NodePort: 30002},
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053}, {Name: "dns-tcp", Port: 53, NodePort: 30053},
	}}), nil)
	if err != nil {
		t.Fatal(err)
	}
	old.ResourceVersion = "1"
	svc := newService(corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{
		{Name: "b", Port: 8081}, {Name: "a", Port: 80, NodePort: 30009}, {Name: "c", Port: 82},
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", Port: 53},
	}})
	svc.ResourceVersion = "1"
	svc, err = r.write(svc, old)
	if err != nil {
		t.Fatal(err)
	}
	p := svc.Spec.Ports
	if p[0].NodePort != 30002 || p[1].NodePort != 30009 || p[2].NodePort == 0 || p[3].NodePort != 30053 || p[4].NodePort != 30053 {
		t.Errorf("node ports %v", p)
	}
}
