package validation

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var cluster = Cluster{ServiceCIDRs: func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")} }}

// compare wants exactly these errors; what is wanted may be their beginnings.
func compare(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			t.Errorf("unexpected error %q", got[i])
		case i >= len(got):
			t.Errorf("no error, want %q", want[i])
		case !strings.HasPrefix(got[i], want[i]):
			t.Errorf("error %q, want %q", got[i], want[i])
		}
	}
}

func set[T any](value T) *T { return &value }

// badAddresses are those to which an endpoint must not lead.
var badAddresses = map[string]string{
	"127.0.0.1":        "may not be in the loopback range",
	"::1":              "may not be in the loopback range",
	"169.254.0.1":      "may not be in the link-local range",
	"fe80::1":          "may not be in the link-local range",
	"224.0.0.1":        "may not be in the link-local multicast range",
	"0.0.0.0":          "may not be unspecified",
	"10.96.3.4":        "may not be in the cluster IP range (10.96.0.0/16)",
	"example.com":      "must be a valid IP address",
	"::ffff:192.0.2.1": "must not be an IPv4-mapped IPv6 address",
}

func TestEndpoints(t *testing.T) {
	endpoints := func(ip string) *corev1.Endpoints {
		return &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
			Subsets: []corev1.EndpointSubset{{
				Addresses: []corev1.EndpointAddress{{IP: ip}},
				Ports:     []corev1.EndpointPort{{Port: 80, Protocol: corev1.ProtocolTCP}},
			}},
		}
	}
	compare(t, cluster.Endpoints(endpoints("10.0.0.1"), nil))
	for ip, want := range badAddresses {
		if ip == "example.com" { // Kubernetes refuses it twice
			continue
		}
		compare(t, cluster.Endpoints(endpoints(ip), nil), `subsets[0].addresses[0].ip: Invalid value: "`+ip+`": `+want)
	}
	own := endpoints("127.0.0.1")
	own.Name = APIService
	compare(t, cluster.Endpoints(own, nil))
	own.Namespace = "other"
	compare(t, cluster.Endpoints(own, nil), `subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range`)

	bad := endpoints("10.0.0.1")
	bad.Subsets[0].Ports = []corev1.EndpointPort{{Port: 0, Protocol: "TCP"}, {Name: "a b", Port: 80, Protocol: "X"}}
	bad.Subsets = append(bad.Subsets, corev1.EndpointSubset{})
	compare(t, cluster.Endpoints(bad, nil),
		"subsets[0].ports[0].name: Required value",
		"subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
		"subsets[0].ports[1].name: Invalid value: \"a b\"",
		"subsets[0].ports[1].protocol: Unsupported value: \"X\"",
		"subsets[1]: Required value: must specify `addresses` or `notReadyAddresses`")
}

func TestEndpointSlice(t *testing.T) {
	slice := func(ip string) *discoveryv1.EndpointSlice {
		family := discoveryv1.AddressTypeIPv4
		if addr, err := netip.ParseAddr(ip); err == nil && addr.Is6() {
			family = discoveryv1.AddressTypeIPv6
		}
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Namespace: "default"},
			AddressType: family,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ip}}},
			Ports:       []discoveryv1.EndpointPort{{Name: set(""), Port: set(int32(80)), Protocol: set(corev1.ProtocolTCP)}},
		}
	}
	compare(t, cluster.EndpointSlice(slice("10.0.0.1"), nil))
	compare(t, cluster.EndpointSlice(slice("fd00::1"), nil))
	for ip, want := range badAddresses {
		compare(t, cluster.EndpointSlice(slice(ip), nil), `endpoints[0].addresses[0]: Invalid value: "`+ip+`": `+want)
	}
	for _, test := range []struct {
		name   string
		change func(*discoveryv1.EndpointSlice)
		want   []string
	}{
		{"family of addresses", func(e *discoveryv1.EndpointSlice) { e.AddressType = "IPv6" }, []string{`endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address`}},
		{"unknown family", func(e *discoveryv1.EndpointSlice) { e.AddressType, e.Endpoints = "X", nil }, []string{`addressType: Unsupported value: "X": supported values: "FQDN", "IPv4", "IPv6"`}},
		{"no address", func(e *discoveryv1.EndpointSlice) { e.Endpoints[0].Addresses = nil }, []string{"endpoints[0].addresses: Required value: must contain at least 1 address"}},
		{"too many endpoints", func(e *discoveryv1.EndpointSlice) { e.Endpoints = make([]discoveryv1.Endpoint, 1001) }, []string{"endpoints: Too many: 1001: must have at most 1000 items"}},
		{"port", func(e *discoveryv1.EndpointSlice) { e.Ports[0].Port = set(int32(-1)) }, []string{"ports[0].port: Invalid value: -1: must be between 1 and 65535, inclusive"}},
		{"protocol", func(e *discoveryv1.EndpointSlice) { e.Ports[0].Protocol = nil }, []string{"ports[0].protocol: Required value"}},
		{"port name twice", func(e *discoveryv1.EndpointSlice) { e.Ports = append(e.Ports, e.Ports[0]) }, []string{`ports[1].name: Duplicate value: ""`}},
		{"node name", func(e *discoveryv1.EndpointSlice) { e.Endpoints[0].NodeName = set("A b") }, []string{`endpoints[0].nodeName: Invalid value: "A b"`}},
		{"host name", func(e *discoveryv1.EndpointSlice) { e.Endpoints[0].Hostname = set("a.b") }, []string{`endpoints[0].hostname: Invalid value: "a.b"`}},
		{"zone hints", func(e *discoveryv1.EndpointSlice) {
			e.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "a"}}}
		}, []string{`endpoints[0].hints.forZones[1].name: Duplicate value: "a"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := slice("10.0.0.1")
			test.change(e)
			compare(t, cluster.EndpointSlice(e, nil), test.want...)
		})
	}
	compare(t, cluster.EndpointSlice(slice("fd00::1"), slice("10.0.0.1")), `addressType: Invalid value: "IPv6": field is immutable`)
}
