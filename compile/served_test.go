package compile

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/model"
)

// TestServed checks that a Service that a server on this node answers for is
// forwarded all the same, and that nobody is told to give up while there is no
// other server.
func TestServed(t *testing.T) {
	dns := netip.MustParseAddr("10.96.0.10")
	config := Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	c := New(config)
	c.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: dns.String(),
			Ports: []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}},
		},
	})
	pool := model.PoolID{Name: "kube-system/kube-dns:dns", Proto: model.UDP}
	for _, served := range []bool{false, true, false} {
		config.Served = nil
		want := model.Reject
		if served {
			config.Served = []netip.Addr{dns}
			want = model.Drop
		}
		c.SetConfig(config)
		table := c.Table()
		if table.Frontend(model.Key{Addr: dns, Port: 53, Proto: model.UDP}) == nil {
			t.Errorf("served here: %v, but not forwarded", served)
		}
		if p := table.Pool(pool); p == nil || p.Empty != want {
			t.Errorf("served here: %v, pool %+v, want it to answer %v while it is empty", served, p, want)
		}
	}
}
