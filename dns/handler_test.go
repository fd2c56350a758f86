package dns

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

func typesName(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// sink takes an answer as a connection would.
type sink struct {
	dns.ResponseWriter
	answer *dns.Msg
}

func (s *sink) WriteMsg(m *dns.Msg) error { s.answer = m; return nil }
func (s *sink) RemoteAddr() net.Addr      { return &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5353} }
func (s *sink) LocalAddr() net.Addr       { return &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 53} }

// TestTruncation checks that an answer fits what the client can take: 512 bytes
// without EDNS0, else what it says, all of it over TCP.
func TestTruncation(t *testing.T) {
	index := example()
	index.SetService(headlessService("many"))
	var endpoints []string
	for i := range 100 {
		endpoints = append(endpoints, fmt.Sprintf("10.244.9.%d", i))
	}
	index.SetSlice(sliceOf("many", "many-4", discoveryv1.AddressTypeIPv4, endpoints...))
	at := serve(t, index)
	for args, whole := range map[string]bool{
		"+noedns +ignore": false, "+bufsize=1000 +ignore": false, "+tcp": true, "+noedns": true,
	} {
		status, records := dig(t, at, append(strings.Fields(args), "A", "many.default.svc.cluster.local.")...)
		if status != "NOERROR" || (len(records) == 100) != whole {
			t.Errorf("%s: got %s and %d records, want all 100: %v", args, status, len(records), whole)
		}
	}
}

// FuzzPackets gives the handler whatever parses as a DNS message.
func FuzzPackets(f *testing.F) {
	for _, name := range []string{"web.default.svc.cluster.local.", "_http._tcp.db.default.svc.cluster.local.", "20.0.96.10.in-addr.arpa.", ".", "cluster.local.", `a\.b.default.svc.cluster.local.`} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypePTR, dns.TypeANY} {
			m := new(dns.Msg)
			m.SetQuestion(name, qtype)
			m.SetEdns0(1232, true)
			packet, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(packet)
		}
	}
	h := &handler{index: example(), loop: &loopGuard{}}
	f.Fuzz(func(t *testing.T, packet []byte) {
		m := new(dns.Msg)
		if m.Unpack(packet) != nil || len(m.Question) == 0 {
			return
		}
		s := &sink{}
		w := request.NewScrubWriter(m, s)
		h.AutoPath(request.Request{W: w, Req: m})
		if _, err := h.ServeDNS(context.Background(), w, m); err != nil {
			t.Fatal(err)
		}
		if s.answer != nil {
			if _, err := s.answer.Pack(); err != nil {
				t.Fatalf("answer can't be packed: %v\n%v", err, s.answer)
			}
		}
	})
}

// BenchmarkHandler answers for the addresses of 10,000 Services, from the
// question to the answer's bytes.
func BenchmarkHandler(b *testing.B) {
	const services = 10_000
	index := NewIndex(IndexConfig{Zone: "cluster.local"})
	questions := make([]*dns.Msg, services)
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		index.SetService(newService(name, func(s *corev1.Service) {
			s.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", i/250, i%250+1)
			s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
		}))
		questions[i] = new(dns.Msg).SetQuestion(name+".default.svc.cluster.local.", dns.TypeA)
	}
	index.Synced()
	h := &handler{index: index, loop: &loopGuard{}}
	buffer := make([]byte, 0, 512)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s := &sink{}
		if _, err := h.ServeDNS(context.Background(), s, questions[i%services]); err != nil {
			b.Fatal(err)
		}
		if _, err := s.answer.PackBuffer(buffer[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
