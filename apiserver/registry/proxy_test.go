package registry

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestNoWayToThisMachine: whatever an object says, requests are passed on to no address
// that means this machine or its link; also not at the last moment.
func TestNoWayToThisMachine(t *testing.T) {
	for _, text := range []string{"127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "fe80::1%lo", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"} {
		a := netip.MustParseAddr(text)
		if proxyable(a) == nil {
			t.Errorf("%s is passed on to", a)
		}
		c, err := proxyTransport().DialContext(t.Context(), "tcp", netip.AddrPortFrom(a, 1).String())
		if err == nil {
			t.Errorf("%s is connected to", a)
			_ = c.Close()
		}
	}
	for _, text := range []string{"10.244.0.7", "fd00::7", "192.0.2.1"} {
		if err := proxyable(netip.MustParseAddr(text)); err != nil {
			t.Error(err)
		}
	}
}

func TestPortsOfProxies(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "admin", ContainerPort: 9090}}}}}}
	for port, want := range map[string]uint16{"": 8080, "admin": 9090, "99": 99, "none": 0, "0": 0, "70000": 0} {
		if got, err := podPort(pod, port); got != want || (err == nil) != (want != 0) {
			t.Errorf("pod's port %q: %d, %v", port, got, err)
		}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}}}}
	for port, want := range map[string]string{"http": "http", "443": "https"} {
		if got, err := servicePort(service, port); got != want || err != nil {
			t.Errorf("Service's port %q: %q, %v", port, got, err)
		}
	}
	for _, port := range []string{"", "8080", "ssh"} {
		if _, err := servicePort(service, port); err == nil {
			t.Errorf("Service's port %q is found", port)
		}
	}
}

func TestReadyEndpoints(t *testing.T) {
	list := &discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{{
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}, {Name: ptr.To("dns"), Port: ptr.To[int32](53), Protocol: ptr.To(corev1.ProtocolUDP)}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1"}}, {Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}, {},
			{Addresses: []string{"fd00::3"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
		},
	}}}
	if got := readyEndpoints(list, "http"); !slices.Equal(got, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("[fd00::3]:8080")}) {
		t.Errorf("%v", got)
	}
	if got := readyEndpoints(list, "dns"); len(got) > 0 {
		t.Errorf("UDP: %v", got)
	}
}

func TestCleanPath(t *testing.T) {
	for from, want := range map[string]string{"": "", "/": "/", "a/b/": "/a/b/", "../../x": "/x", "a//b": "/a/b", "/a/./b": "/a/b"} {
		if got := cleanPath(from); got != want {
			t.Errorf("%q: %q", from, got)
		}
	}
}
