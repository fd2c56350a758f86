package trace

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/nftrace"
	"github.com/fairway-net/fairway/model"
)

var (
	client   = netip.MustParseAddrPort("10.244.1.2:40000")
	frontend = netip.MustParseAddrPort("10.96.0.10:80")
	backend  = netip.MustParseAddrPort("10.244.2.3:8080")
)

// names is a Namer by chains' names.
type names struct{}

func (names) Interface(index int) string { return map[int]string{1: "pod1", 2: "eth0"}[index] }
func (names) Rule(e nftrace.Event) string {
	return map[uint64]string{7: "tcp dport 8080 drop", 8: "reject with icmpx admin-prohibited", 9: "goto services"}[e.Handle]
}
func (names) Base(e nftrace.Event) (nftrace.Base, bool) {
	hook := map[string]string{"nat-prerouting": "prerouting", "forward": "forward", "KUBE-FORWARD": "forward"}[e.Chain]
	return nftrace.Base{Hook: hook}, hook != ""
}

// Events of a SYN, and of what answers it.
func header(source, destination netip.AddrPort, flags uint8) *nftrace.Header {
	return &nftrace.Header{Source: source, Destination: destination, Proto: uint8(model.TCP), TCPFlags: flags}
}

const syn, synAck, rst = 0x02, 0x12, 0x14

func request() []nftrace.Event {
	return []nftrace.Event{
		{Packet: 1, Passed: nftrace.Begins, In: 1, Header: header(client, frontend, syn)},
		{Packet: 1, Family: "inet", Table: "fairway", Chain: "nat-prerouting", Kind: nftrace.Rule, Handle: 9, Verdict: "goto", Target: "services", Header: header(client, frontend, syn)},
		{Packet: 1, Passed: "prerouting", Header: header(client, backend, syn)},
	}
}

func sent() []nftrace.Event {
	return append(request(), nftrace.Event{Packet: 1, Passed: "forward"}, nftrace.Event{Packet: 1, Passed: "postrouting", Out: 2})
}

func answer(flags uint8) []nftrace.Event {
	return append(sent(),
		nftrace.Event{Packet: 2, Reply: true, Passed: nftrace.Begins, In: 2, Header: header(backend, client, flags)},
		nftrace.Event{Packet: 2, Reply: true, Passed: "postrouting", Out: 1, Header: header(frontend, client, flags)})
}

func dropping(family, table, chain string, handle uint64) []nftrace.Event {
	return append(request(), nftrace.Event{Packet: 1, Family: family, Table: table, Chain: chain, Kind: nftrace.Rule, Handle: handle, Verdict: "drop"})
}

func objects() *explain.Objects {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"}}
	pod.Spec.NodeName = "node2"
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.2.3"}}
	return &explain.Objects{Pods: []*corev1.Pod{pod}}
}

// TestAnswers holds the first line and the exit code to what was seen.
func TestAnswers(t *testing.T) {
	policy := append(request(), nftrace.Event{Packet: 1, Family: "ip", Table: "filter", Chain: "forward", Kind: nftrace.Policy, Verdict: "drop"})
	late := append(answer(synAck)[:6], nftrace.Event{Packet: 2, Reply: true, Family: "inet", Table: "x", Chain: "forward", Kind: nftrace.Rule, Handle: 7, Verdict: "drop"})
	for _, c := range []struct {
		name   string
		mode   string
		events []nftrace.Event
		result *Result
		want   string
		code   int
	}{
		{"answered", "nftables", answer(synAck), &Result{Outcome: Answered, Took: time.Millisecond}, "ANSWERED by 10.244.2.3:8080 (default/web-1 on node2) in 1ms", 0},
		{"watched", "nftables", answer(synAck), nil, "ANSWERED by 10.244.2.3:8080 (default/web-1 on node2)", 0},
		{"refused by the endpoint", "nftables", answer(rst), nil, "REFUSED by 10.244.2.3:8080 (default/web-1 on node2): nothing listens there, or a rule on its way refuses it", 1},
		{"foreign rule", "nftables", dropping("inet", "firewalld", "filter_FORWARD", 7), nil, "DROPPED on node1 by a rule of firewalld, not Fairway's: inet firewalld filter_FORWARD: tcp dport 8080 drop (handle 7)", 1},
		{"foreign rejection", "nftables", dropping("ip", "filter", "DOCKER-USER", 8), nil, "REFUSED on node1 by a rule of Docker, not Fairway's: ip filter DOCKER-USER: reject with icmpx admin-prohibited (handle 8)", 1},
		{"unknown owner", "nftables", dropping("inet", "mine", "fwd", 7), nil, "DROPPED on node1 by a rule not Fairway's: inet mine fwd: tcp dport 8080 drop (handle 7)", 1},
		{"own", "iptables", dropping("ip", "filter", "KUBE-FORWARD", 7), nil, "DROPPED on node1 by a rule of Fairway's own: ip filter KUBE-FORWARD: tcp dport 8080 drop (handle 7)", 1},
		{"kube-proxy's", "nftables", dropping("ip", "filter", "KUBE-FORWARD", 7), nil, "DROPPED on node1 by a rule of kube-proxy, not Fairway's: ip filter KUBE-FORWARD: tcp dport 8080 drop (handle 7)", 1},
		{"policy", "nftables", policy, nil, "DROPPED on node1 by the policy of a chain not Fairway's: ip filter forward", 1},
		{"answer dropped", "nftables", late, &Result{Outcome: NoAnswer}, "DROPPED on node1 by a rule not Fairway's: inet x forward: tcp dport 8080 drop (handle 7); it was the answer", 1},
		{"lost", "nftables", request(), &Result{Outcome: NoAnswer, Took: time.Second}, "LOST on node1 after prerouting, on its way to 10.244.2.3:8080: no rule dropped it; the kernel did, while it was routed: no route, rp_filter, or forwarding is off", 1},
		{"gone", "nftables", sent(), &Result{Outcome: NoAnswer, Took: time.Second}, "NO ANSWER in 1s: the packet left node1 by eth0 to 10.244.2.3:8080 (default/web-1 on node2)", 1},
		{"nothing", "nftables", nil, nil, "NOT SEEN: no such connection came in time", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := New(explain.Question{Typed: "svc/web"}, "node1", Plane{Mode: c.mode, KubeProxyNames: c.mode == "iptables"})
			r.Result = c.result
			r.AddPackets(c.events, names{})
			if len(c.events) > 0 {
				r.Connection(model.TCP, client, frontend)
				source, to := r.Packets[0].End()
				r.Chosen(to, source, objects())
			}
			r.Conclude()
			if r.Answer != c.want || r.ExitCode() != c.code {
				t.Errorf("answer\n%s\nexit code %d, want\n%s\n%d", r.Answer, r.ExitCode(), c.want, c.code)
			}
			if failed := c.code == 1; failed != (len(r.Next) > 0 && strings.HasPrefix(r.Next[len(r.Next)-1], "fairway doctor svc/web")) {
				t.Errorf("next is %q", r.Next)
			}
		})
	}
}

// TestText: the text has each step, with what was translated, and packets that were
// sent again once.
func TestText(t *testing.T) {
	r := New(explain.Question{Typed: "svc/web"}, "node1", Plane{Mode: "nftables"})
	again := sent()
	for i := range again {
		again[i].Packet = 3
	}
	r.AddPackets(append(answer(synAck), again...), names{})
	r.Connection(model.TCP, client, frontend)
	r.Chosen(backend, client, objects())
	r.Conclude()
	var b strings.Builder
	if err := r.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	want := `ANSWERED by 10.244.2.3:8080 (default/web-1 on node2)

 connection   10.244.1.2:40000 > 10.96.0.10:80/tcp
 node         node1 (nftables)
 endpoint     10.244.2.3:8080 (default/web-1 on node2), another node
 request      SYN  10.244.1.2:40000 > 10.96.0.10:80  in pod1, sent again once
   prerouting   inet fairway nat-prerouting: goto services
                translated: destination 10.96.0.10:80 -> 10.244.2.3:8080
                left by eth0
 answer       SYN ACK  10.244.2.3:8080 > 10.244.1.2:40000  in eth0
   postrouting  translated: source 10.244.2.3:8080 -> 10.96.0.10:80
                left by pod1
`
	if b.String() != want {
		t.Errorf("text\n%s\nwant\n%s", b.String(), want)
	}
}

// TestOtherNodes: what another node saw of packets to the endpoint is shown, with the rule
// or the kernel's reason that ended one there.
func TestOtherNodes(t *testing.T) {
	elsewhere := func(more ...nftrace.Event) []nftrace.Event {
		return append([]nftrace.Event{
			{Packet: 1, Passed: nftrace.Begins, In: 2, Header: header(client, backend, syn)},
			{Packet: 2, Passed: nftrace.Begins, In: 2, Header: header(client, frontend, syn)}, // to somebody else
			{Packet: 2, Passed: "prerouting"},
		}, more...)
	}
	dropped := nftrace.Event{Packet: 1, Family: "inet", Table: "firewalld", Chain: "filter_FORWARD", Kind: nftrace.Rule, Handle: 7, Verdict: "drop"}
	drop := Drop{Node: "node2", Reason: "IP_RPFILTER", Source: client, Destination: backend}
	stranger := Drop{Node: "node2", Reason: "NO_SOCKET", Source: frontend, Destination: backend}
	for _, c := range []struct {
		name   string
		events []nftrace.Event
		drops  []Drop
		want   string
	}{
		{"rule", elsewhere(dropped), []Drop{{Node: "node2", Reason: "NETFILTER_DROP", Source: client, Destination: backend}}, "DROPPED on node2 by a rule of firewalld, not Fairway's: inet firewalld filter_FORWARD: tcp dport 8080 drop (handle 7)"},
		{"kernel", elsewhere(), []Drop{stranger, drop}, "DROPPED on node2 by the kernel, on its way to 10.244.2.3:8080: IP_RPFILTER: the way back to its source is by another interface (rp_filter)"},
		{"lost", elsewhere(nftrace.Event{Packet: 1, Passed: "prerouting"}), []Drop{stranger}, "LOST on node2 after prerouting, on its way to 10.244.2.3:8080: no rule dropped it; the kernel did, while it was routed: no route, rp_filter, or forwarding is off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := New(explain.Question{Typed: "svc/web"}, "node1", Plane{Mode: "nftables"})
			r.Result = &Result{Outcome: NoAnswer, Took: time.Second}
			r.AddPackets(sent(), names{})
			r.Connection(model.TCP, client, frontend)
			r.Chosen(backend, client, objects())
			r.AddPacketsOf("node2", Plane{Mode: "nftables"}, c.events, names{})
			r.Pending = c.drops
			r.TakeDrops()
			r.Conclude()
			if r.Answer != c.want || len(r.Packets) != 2 || r.Packets[1].Node != "node2" {
				t.Errorf("answer\n%s\nwant\n%s\n%+v", r.Answer, c.want, r.Packets)
			}
		})
	}
}
