package dns

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeUpstream answers for example.com and remembers what it was asked.
type fakeUpstream struct {
	mu     sync.Mutex
	asked  []string
	server *dns.Server
}

func newUpstream(t *testing.T) (*fakeUpstream, string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &fakeUpstream{}
	started := make(chan struct{})
	u.server = &dns.Server{PacketConn: conn, Handler: u, NotifyStartedFunc: func() { close(started) }}
	ended := make(chan error, 1)
	go func() { ended <- u.server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		u.stop(t)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return u, conn.LocalAddr().String()
}

func (u *fakeUpstream) stop(t *testing.T) {
	if err := u.server.Shutdown(); err != nil && !strings.Contains(err.Error(), "not started") {
		t.Error(err)
	}
}

func (u *fakeUpstream) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	q := m.Question[0]
	answer := new(dns.Msg)
	answer.SetReply(m)
	u.mu.Lock()
	if q.Name != "." && q.Qtype != dns.TypeHINFO { // health checks and the look for loops
		u.asked = append(u.asked, strings.ToLower(q.Name))
	}
	u.mu.Unlock()
	switch {
	case !strings.EqualFold(q.Name, "example.com."):
		answer.Rcode = dns.RcodeNameError
	case q.Qtype == dns.TypeA:
		answer.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(192, 0, 2, 80),
		}}
	}
	if err := w.WriteMsg(answer); err != nil {
		return // the client went away
	}
}

func (u *fakeUpstream) questions() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.asked)
}

// TestSearchPathIsFollowedHere checks that a pod's lookup of an outside name
// costs one question to the upstream, and gets its answer at the first try.
func TestSearchPathIsFollowedHere(t *testing.T) {
	upstream, address := newUpstream(t)
	index := example()
	at := serve(t, index, address)
	const first = "example.com.default.svc.cluster.local."
	if status, _ := dig(t, at, "A", first); status != "NXDOMAIN" {
		t.Errorf("a stranger gets %s, want NXDOMAIN", status)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "client"}}
	pod.Status.PodIPs = []corev1.PodIP{{IP: "127.0.0.1"}}
	index.SetPod(pod)
	status, records := dig(t, at, "A", first)
	if len(records) != 2 || status != "NOERROR" || !strings.HasSuffix(records[0]+records[1], "CNAME example.com.") && !strings.Contains(records[0], "A 192.0.2.80") {
		t.Errorf("the pod gets %s %v, want an alias of example.com and its address", status, records)
	}
	if asked := upstream.questions(); !slices.Equal(asked, []string{"example.com."}) {
		t.Errorf("the upstream was asked %v, want example.com once", asked)
	}
	if status, records := dig(t, at, "A", "web.default.svc.cluster.local."); status != "NOERROR" || len(records) != 1 {
		t.Errorf("a Service's name gets %s %v", status, records)
	}
	index.DeletePod(typesName("default", "client"))
	if status, _ := dig(t, at, "A", first); status != "NXDOMAIN" {
		t.Errorf("without its pod the address gets %s, want NXDOMAIN", status)
	}
}

// TestStaleAnswers checks that names known before are answered while no
// upstream is.
func TestStaleAnswers(t *testing.T) {
	upstream, address := newUpstream(t)
	at := freeAddress()
	corefile := Corefile(CorefileConfig{Listen: []netip.AddrPort{at}, Upstreams: []string{address}})
	start(t, example(), strings.Replace(corefile, "success 8192", "success 8192 30 1", 1))
	if status, _ := dig(t, at, "A", "example.com."); status != "NOERROR" {
		t.Fatalf("got %s, want NOERROR", status)
	}
	upstream.stop(t)
	time.Sleep(1500 * time.Millisecond) // the record's TTL; that it is fresh still would do no harm
	if status, records := dig(t, at, "A", "example.com."); status != "NOERROR" || len(records) != 1 || !strings.HasSuffix(records[0], "A 192.0.2.80") {
		t.Errorf("got %s %v, want the address known before", status, records)
	}
}

// TestExternalNameOutside checks that an alias is followed out of the cluster.
func TestExternalNameOutside(t *testing.T) {
	_, address := newUpstream(t)
	index := example()
	index.SetService(newService("out", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	}))
	at := serve(t, index, address)
	status, records := dig(t, at, "A", "out.default.svc.cluster.local.")
	if status != "NOERROR" || len(records) != 2 || !strings.HasSuffix(records[1], "CNAME example.com.") {
		t.Errorf("got %s %v, want the alias and its address", status, records)
	}
}

// TestLoop checks that a server that is its own upstream refuses what it would
// ask itself, and still knows the cluster's names.
func TestLoop(t *testing.T) {
	at := freeAddress()
	s := start(t, example(), Corefile(CorefileConfig{Listen: []netip.AddrPort{at}, Upstreams: []string{at.String()}}))
	go s.GuardLoops(t.Context(), at, time.Second)
	for late := range wait.Tries(30 * time.Second) {
		s.loop.mu.Lock()
		looped := s.loop.looped
		s.loop.mu.Unlock()
		if looped {
			break
		}
		if late {
			t.Fatal("the loop was not found")
		}
	}
	if status, _ := dig(t, at, "A", "example.com."); status != "SERVFAIL" {
		t.Errorf("got %s, want SERVFAIL", status)
	}
	if status, _ := dig(t, at, "A", "web.default.svc.cluster.local."); status != "NOERROR" {
		t.Errorf("got %s, want NOERROR", status)
	}
}
