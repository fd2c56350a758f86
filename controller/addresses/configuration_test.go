package addresses

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

func pool(name string, age time.Duration, addresses ...string) *v1beta1.IPAddressPool {
	return &v1beta1.IPAddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Spec:       v1beta1.IPAddressPoolSpec{Addresses: addresses},
	}
}

func TestRead(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.5"}, {Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.5"},
	}}}
	badSelector := pool("p", 0, "192.0.2.0/31")
	badSelector.Spec.AllocateTo = &v1beta1.ServiceAllocation{NamespaceSelectors: []metav1.LabelSelector{
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Likes"}}},
	}}
	tests := []struct {
		name     string
		pools    []*v1beta1.IPAddressPool
		want     []string // pool and ranges in force
		problems []string
	}{
		{"good", []*v1beta1.IPAddressPool{pool("p", 0, "192.0.2.0/31", "2001:db8::-2001:db8::1")}, []string{"p 192.0.2.0-192.0.2.1 2001:db8::-2001:db8::1"}, nil},
		{"one bad range of two", []*v1beta1.IPAddressPool{pool("p", 0, "192.0.2.9-192.0.2.1", "192.0.2.0/31")},
			[]string{"p 192.0.2.0-192.0.2.1"}, []string{`IPAddressPool p: spec.addresses[0]: range "192.0.2.9-192.0.2.1": ends before it begins`}},
		{"no addresses", []*v1beta1.IPAddressPool{pool("p", 0)}, []string{"p"}, []string{"IPAddressPool p: spec.addresses: empty"}},
		{"overlap within a pool", []*v1beta1.IPAddressPool{pool("p", 0, "198.51.100.0/31", "198.51.100.1-198.51.100.2")},
			[]string{"p 198.51.100.0-198.51.100.1 198.51.100.2-198.51.100.2"}, []string{"spec.addresses[1]: 198.51.100.1-198.51.100.2 overlaps what is listed before"}},
		{"overlapping pools: the older one has it", []*v1beta1.IPAddressPool{pool("a", 0, "198.51.100.0/30"), pool("b", time.Hour, "198.51.100.2/32")},
			[]string{"b 198.51.100.2-198.51.100.2", "a 198.51.100.0-198.51.100.1 198.51.100.3-198.51.100.3"},
			[]string{"IPAddressPool a: spec.addresses: overlaps pool b (198.51.100.2)"}},
		{"cluster IPs", []*v1beta1.IPAddressPool{pool("p", 0, "10.95.255.255-10.96.0.9")}, []string{"p 10.95.255.255-10.95.255.255"},
			[]string{"overlaps the range of cluster IPs (10.96.0.0-10.96.255.255)"}},
		{"a node's address", []*v1beta1.IPAddressPool{pool("p", 0, "192.0.2.4-192.0.2.6")}, []string{"p 192.0.2.4-192.0.2.4 192.0.2.6-192.0.2.6"},
			[]string{"overlaps an address of node n1 (192.0.2.5)"}},
		{"a selector that makes no sense matches nothing", []*v1beta1.IPAddressPool{badSelector}, []string{"p 192.0.2.0-192.0.2.1"},
			[]string{`spec.serviceAllocation.namespaceSelectors[0]: "Likes" is not a valid label selector operator`}},
	}
	taken := reservedOf([]netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, []*corev1.Node{node})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pools, problems := read(test.pools, taken)
			var got []string
			for _, p := range pools {
				text := p.Name
				for _, r := range p.Ranges {
					text += " " + r.String()
				}
				got = append(got, text)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("in force: %q, want %q", got, test.want)
			}
			if len(problems) != len(test.problems) {
				t.Fatalf("problems: %v, want %q", problems, test.problems)
			}
			for i, p := range problems {
				if !strings.Contains(p.String(), test.problems[i]) {
					t.Errorf("problem %q, want %q", p, test.problems[i])
				}
			}
		})
	}
}

func TestRequested(t *testing.T) {
	for name, test := range map[string]struct {
		ip          string
		annotations map[string]string
		want        string
		err         string
	}{
		"nothing":        {want: "[]"},
		"spec":           {ip: "192.0.2.1", want: "[192.0.2.1]"},
		"annotation":     {annotations: map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.1, 2001:db8::1"}, want: "[192.0.2.1 2001:db8::1]"},
		"old annotation": {annotations: map[string]string{"metallb.universe.tf/loadBalancerIPs": "192.0.2.1"}, want: "[192.0.2.1]"},
		"the new one counts": {annotations: map[string]string{
			"metallb.universe.tf/loadBalancerIPs": "192.0.2.1", "metallb.io/loadBalancerIPs": "192.0.2.2"}, want: "[192.0.2.2]"},
		"both":    {ip: "192.0.2.1", annotations: map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.1"}, err: "only one may be"},
		"no IP":   {ip: "gateway", err: `spec.loadBalancerIP: "gateway" is not an IP address`},
		"no list": {annotations: map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.1;"}, err: "metallb.io/loadBalancerIPs"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			s.Spec.LoadBalancerIP = test.ip
			got, err := v1beta1.RequestedAddresses(s)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || test.want != "["+joinAddresses(got)+"]" {
				t.Errorf("got %v (%v), want %s", got, err, test.want)
			}
		})
	}
}

func joinAddresses(list []netip.Addr) string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

func TestWants(t *testing.T) {
	service := func(kind corev1.ServiceType, class *string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, LoadBalancerClass: class}}
	}
	ours, others := "fairway.dev/lb", "example.com/lb"
	for name, test := range map[string]struct {
		service *corev1.Service
		class   string
		want    bool
	}{
		"no class, none asked":      {service(corev1.ServiceTypeLoadBalancer, nil), "", true},
		"a class, none of ours":     {service(corev1.ServiceTypeLoadBalancer, &others), "", false},
		"our class":                 {service(corev1.ServiceTypeLoadBalancer, &ours), ours, true},
		"another class":             {service(corev1.ServiceTypeLoadBalancer, &others), ours, false},
		"no class, but we have one": {service(corev1.ServiceTypeLoadBalancer, nil), ours, false},
		"another type":              {service(corev1.ServiceTypeNodePort, nil), "", false},
	} {
		if got := wants(test.service, test.class); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
