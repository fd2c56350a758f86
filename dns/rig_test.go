package dns

import (
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nextPort is below those that the kernel gives to clients.
var nextPort atomic.Uint32

// freeAddress is one that nobody listens at, or has before.
func freeAddress() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(10000+nextPort.Add(1)))
}

// serve serves an index at a free address until the test ends.
func serve(t *testing.T, index *Index, upstreams ...string) netip.AddrPort {
	t.Helper()
	at := freeAddress()
	start(t, index, Corefile(CorefileConfig{Listen: []netip.AddrPort{at}, Upstreams: upstreams}))
	return at
}

func start(t *testing.T, index *Index, corefile string) *Server {
	t.Helper()
	s, err := Start(ServerConfig{Index: index, Corefile: corefile, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%v, with\n%s", err, corefile)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dig asks with the program of that name, which shares no code with us: the
// status, and the records of the answer without owner and class.
func dig(t *testing.T, at netip.AddrPort, args ...string) (status string, records []string) {
	t.Helper()
	args = append([]string{"@" + at.Addr().String(), "-p", strconv.Itoa(int(at.Port())), "+noall", "+comments", "+answer", "+tries=1", "+time=30"}, args...)
	out, err := exec.Command("dig", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dig %v: %v\n%s", args, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if _, rest, ok := strings.Cut(line, "status: "); ok {
			status, _, _ = strings.Cut(rest, ",")
		}
		if f := strings.Fields(line); len(f) >= 5 && !strings.HasPrefix(line, ";") {
			records = append(records, f[1]+" "+strings.Join(f[3:], " "))
		}
	}
	slices.Sort(records)
	return status, records
}

func newService(name string, edit func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	edit(s)
	return s
}

func clusterService(name string, ips ...string) *corev1.Service {
	return newService(name, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeClusterIP
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ips[0], ips
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
		}
	})
}

func headlessService(name string) *corev1.Service {
	return newService(name, func(s *corev1.Service) {
		s.Spec.ClusterIP = corev1.ClusterIPNone
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	})
}

// sliceOf makes a slice; an endpoint is "address", "address=hostname", with "!" behind if not ready.
func sliceOf(service, name string, family discoveryv1.AddressType, endpoints ...string) *discoveryv1.EndpointSlice {
	port, number, proto := "http", int32(8080), corev1.ProtocolTCP
	other, otherNumber := "admin", int32(9090)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &proto}, {Name: &other, Port: &otherNumber, Protocol: &proto}},
	}
	for _, text := range endpoints {
		text, unready := strings.CutSuffix(text, "!")
		ready := !unready
		address, hostname, named := strings.Cut(text, "=")
		e := discoveryv1.Endpoint{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod-" + address},
		}
		if named {
			e.Hostname = &hostname
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}
