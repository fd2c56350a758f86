package dns

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// FuzzDirect checks that direct answers are those of the handlers.
func FuzzDirect(f *testing.F) {
	for _, name := range []string{
		"web.default.svc.cluster.local.", "WEB.Default.svc.CLUSTER.local.", "nothing.default.svc.cluster.local.", "db.default.svc.cluster.local.",
		"inside.default.svc.cluster.local.", "example.com.default.svc.cluster.local.", "example.com.cluster.local.", "example.com.",
		"cluster.local.", "svc.cluster.local.", "default.svc.cluster.local.", "a.web.default.svc.cluster.local.", "x.a.web.default.svc.cluster.local.",
		"y.x.a.web.default.svc.cluster.local.", "_tcp.web.default.svc.cluster.local.", "xcluster.local.", "dns-version.cluster.local.",
		"10-1-2-3.default.pod.cluster.local.", "w_eb.default.svc.cluster.local.", `a\.b.default.svc.cluster.local.`, ".",
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeMX} {
			m := new(dns.Msg).SetQuestion(name, qtype)
			m.CheckingDisabled = qtype == dns.TypeA
			for _, size := range []uint16{0, 400, 1232} {
				if size > 0 {
					m.SetEdns0(size, size == 1232)
				}
				packet, err := m.Pack()
				if err != nil {
					f.Fatal(err)
				}
				f.Add(packet)
			}
		}
	}
	index := example()
	h := &handler{index: index, loop: &loopGuard{}}
	f.Fuzz(func(t *testing.T, packet []byte) {
		packet = packet[:min(len(packet), maxQuestion)]
		client := netip.MustParseAddr("192.0.2.1")
		direct, _, ok := index.direct(nil, packet, client, 65535)
		if !ok {
			return
		}
		got, question := new(dns.Msg), new(dns.Msg)
		if err := got.Unpack(direct); err != nil {
			t.Fatalf("answer % x to % x: %v", direct, packet, err)
		}
		if err := question.Unpack(packet); err != nil {
			t.Fatalf("question % x, which was answered: %v", packet, err)
		}
		s := &sink{}
		if _, err := h.ServeDNS(context.Background(), request.NewScrubWriter(question, s), question); err != nil {
			t.Fatal(err)
		}
		packed, err := s.answer.Pack()
		if err != nil {
			t.Fatal(err)
		}
		want := new(dns.Msg)
		if err := want.Unpack(packed); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got.Ns, want.Ns, func(a, b dns.RR) bool { return strings.EqualFold(a.String(), b.String()) }) {
			t.Errorf("authority %v, want %v", got.Ns, want.Ns)
		}
		got.Ns, want.Ns = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%v\nwant\n%v", got, want)
		}
	})
}

// TestDirectAllocatesNothing, neither for answers nor for questions that are
// not for it.
func TestDirectAllocatesNothing(t *testing.T) {
	index := example()
	buffer := make([]byte, 0, 2*directMax)
	for name, want := range map[string]bool{
		"web.default.svc.cluster.local.": true, "nothing.default.svc.cluster.local.": true,
		"db.default.svc.cluster.local.": false, "example.com.": false,
	} {
		packet, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		allocated := testing.AllocsPerRun(100, func() {
			if _, _, ok := index.direct(buffer, packet, netip.Addr{}, 1232); ok != want {
				t.Errorf("%s: answered %v, want %v", name, ok, want)
			}
		})
		if allocated != 0 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}

// BenchmarkDirect answers for the address of a Service, from packet to packet.
func BenchmarkDirect(b *testing.B) {
	index := example()
	packet, err := new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA).Pack()
	if err != nil {
		b.Fatal(err)
	}
	buffer := make([]byte, 0, 2*directMax)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := index.direct(buffer, packet, netip.Addr{}, 1232); !ok {
			b.Fatal("not answered")
		}
	}
}
