package dns

import (
	"testing"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/types"
)

// TestCoherence checks that cluster IPs are answered once they are forwarded,
// and deleted ones never again.
func TestCoherence(t *testing.T) {
	x := NewIndex(IndexConfig{Zone: "cluster.local", Gated: true})
	check := func(what string, want outcome, address string) {
		t.Helper()
		r, got := x.lookup("web.default.svc.cluster.local.", dns.TypeA)
		if got != want {
			t.Fatalf("%s: outcome %d, want %d", what, got, want)
		}
		if address != "" && r.answer[0].(*dns.A).A.String() != address {
			t.Fatalf("%s: answer %v, want %s", what, r.answer[0], address)
		}
	}
	check("nothing is applied", notYet, "")
	x.Applied(x.Mark())
	check("no Service", noName, "")
	early := x.Mark()
	x.SetService(clusterService("web", "10.96.0.20"))
	check("not forwarded", noName, "")
	x.Applied(early)
	check("a table from before is applied", noName, "")
	x.Applied(x.Mark())
	check("forwarded", found, "10.96.0.20")

	x.SetService(clusterService("web", "10.96.0.21"))
	check("the address has changed", noName, "")
	x.Applied(x.Mark())
	check("the new address is forwarded", found, "10.96.0.21")

	x.DeleteService(types.NamespacedName{Namespace: "default", Name: "web"})
	check("deleted", noName, "")
	x.SetService(clusterService("web", "10.96.0.22"))
	x.DeleteService(types.NamespacedName{Namespace: "default", Name: "web"})
	x.Applied(x.Mark())
	check("deleted before it was forwarded", noName, "")
	if len(x.services)+len(x.addresses)+len(x.namespaces)+len(x.pending) != 0 {
		t.Errorf("something is remembered of what is gone: %d services, %d addresses, %d namespaces, %d pending",
			len(x.services), len(x.addresses), len(x.namespaces), len(x.pending))
	}
}
