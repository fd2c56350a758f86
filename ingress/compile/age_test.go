package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestOldestAsksFirst: Gateways ask where to listen in the order of their age, so that of
// two whose Services name one port the older has it, whoever asks, and again and again.
func TestOldestAsksFirst(t *testing.T) {
	o := &Objects{Classes: []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "fairway"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: Controller}}}}
	var want []string
	for i := range 8 {
		name := fmt.Sprintf("g%d", 9-i) // names say the opposite
		want = append(want, name)
		o.Gateways = append(o.Gateways, &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1000+i), 0))},
			Spec:       gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}},
		})
	}
	slices.Reverse(o.Gateways)
	var got []string
	Compile(o, Options{Endpoints: endpointOf, TableOnly: true, Bind: func(gateway types.NamespacedName, _ uint16) netip.AddrPort {
		got = append(got, gateway.Name)
		return netip.AddrPort{}
	}})
	got = slices.DeleteFunc(got, func(name string) bool { return name == IngressGateway.Name })
	if !slices.Equal(got, want) {
		t.Errorf("asked in the order %v, want %v", got, want)
	}
}
