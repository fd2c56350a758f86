package explain

import (
	"net/netip"
	"strings"
	"testing"
)

// TestDifferences: an agent that refuses what nobody serves, since it knows the ranges of
// cluster IPs, says nothing else than the API; one that refuses a Service does.
func TestDifferences(t *testing.T) {
	view := func(action, service string) View {
		return View{Decisions: []Decision{{Frontend: "10.96.0.99:80/tcp", Origin: "pod", Action: action, Service: service}}}
	}
	for _, c := range []struct {
		api, agent View
		differ     bool
	}{
		{view("not a Service", ""), view("refused", ""), false},
		{view("not a Service", ""), view("refused", "default/gone:"), true},
		{view("forwarded", "default/web:"), view("refused", ""), true},
		{view("refused", "default/web:"), view("refused", "default/web:"), false},
		{view("refused", "default/web:"), View{}, true},
	} {
		if got := differences(c.api, c.agent); (len(got) > 0) != c.differ {
			t.Errorf("API %+v, agent %+v: %q", c.api.Decisions, c.agent.Decisions, got)
		}
	}
}

// TestServedHere: a node that answers at a Service's address itself leaves its own server out of
// the endpoints; that is no difference from the API, and packets are answered.
func TestServedHere(t *testing.T) {
	api := Decision{Frontend: "10.96.0.10:53/udp", Service: "kube-system/kube-dns:dns", Action: "forwarded", Origin: "pod"}
	own := api
	own.Action, own.Reason = "dropped", "the Service port has no endpoint to use"
	at := netip.MustParseAddr("10.96.0.10")
	view := View{Node: "node1", Mode: "nftables", Decisions: []Decision{own}, Served: []netip.Addr{at}}
	if list := differences(View{Decisions: []Decision{api}}, view); len(list) > 0 {
		t.Errorf("it is said to differ: %q", list)
	}
	r := &Report{From: Source{Kind: "pod"}}
	r.add(&Objects{}, []View{view})
	if r.Outcome != OutcomeForwarded || !strings.Contains(r.Answer, "ANSWERED by the server on node1 itself; should it fail: DROPPED") {
		t.Errorf("%s: %s", r.Outcome, r.Answer)
	}
	view.Served = nil
	if list := differences(View{Decisions: []Decision{api}}, view); len(list) != 1 {
		t.Errorf("without a server of its own, it differs: %q", list)
	}
}
