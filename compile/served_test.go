package compile

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/model"
)

// TestServed checks that nothing is forwarded from an address that a server on
// this node answers at, and that packets to it pass; and that both ends when the
// server does.
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
	key := model.Key{Addr: dns, Port: 53, Proto: model.UDP}
	for _, served := range []bool{false, true, false} {
		config.Served = nil
		if served {
			config.Served = []netip.Addr{dns}
		}
		c.SetConfig(config)
		table := c.Table()
		if forwarded := table.Frontend(key) != nil; forwarded == served {
			t.Errorf("served here: %v, forwarded: %v", served, forwarded)
		}
		if exempt := slices.Contains(table.Settings.Exempt, dns); exempt != served {
			t.Errorf("served here: %v, exempt: %v", served, exempt)
		}
	}
}
