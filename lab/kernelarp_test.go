package lab_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// TestNobodyAnswersEarly: in userspace mode addresses of Services are each node's own. No
// node's kernel answers ARP for one that nobody announces, since it has no endpoint yet:
// clients would stay with that node, whichever announces the address then.
func TestNobodyAnswersEarly(t *testing.T) {
	const address = "172.30.200.1"
	c := config("early")
	c.Mode, c.LoadBalancerRanges = "userspace", []string{address + "-172.30.200.9"}
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"node1", "node2"} {
		eventually(t, node+" takes the address for its own", func() bool {
			out, _, code := fairway("lab", "exec", "--name", c.Name, node, "--", "ip", "route", "get", address)
			return code == 0 && strings.HasPrefix(out, "local ")
		})
	}
	ns, err := netns.Open(topology.HostNamespace(c.Name, "client"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if conn, err := (&place{ns: ns}).dial(ctx, "tcp", net.JoinHostPort(address, "80")); err == nil {
		t.Error("something is connected to: ", conn.Close())
	}
	out, said, code := fairway("lab", "exec", "--name", c.Name, "client", "--", "ip", "neigh", "show", address)
	if code != 0 || out == "" || strings.Contains(out, "lladdr") {
		t.Errorf("the client's neighbor is %q, want one that doesn't answer: %s", out, said)
	}
}
