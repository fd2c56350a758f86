//go:build drain

package lab_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/lab"
)

// TestDrainManyAddresses: ten thousand addresses on layer 2, and as many under a router, move
// when a node is drained. Of connections to some of them none is lost, new ones neither.
func TestDrainManyAddresses(t *testing.T) {
	const services, each = 100, 100
	for _, way := range []string{"layer2", "routers"} {
		t.Run(way, func(t *testing.T) {
			c := config("many-" + way)
			c.Nodes, c.Mode = 3, "nftables"
			first := netip.MustParseAddr("172.30.128.1")
			protocol, resource, ad := announce.Layer2, "l2advertisements", runtime.Object(&v1beta1.L2Advertisement{ObjectMeta: externalIPs})
			if way == "routers" {
				c.Router, first = lab.RouterBird, netip.MustParseAddr("10.99.0.1")
				protocol, resource, ad = announce.BGP, "bgpadvertisements", &v1beta1.BGPAdvertisement{ObjectMeta: externalIPs}
			}
			c.LoadBalancerRanges = []string{"192.0.2.1-192.0.2.9"}
			up(t, c)
			t.Cleanup(func() { agentsSaid(t, c.Name, "node1", "node2", "node3") })
			client, err := lab.Client(c.Name)
			if err != nil {
				t.Fatal(err)
			}
			metallb := metallbClient(t, c.Name)
			if err := metallb.V1beta1.Post().Namespace(v1beta1.DefaultNamespace).Resource(resource).Body(ad).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
			pods := hello(6)
			pods.Spec.Template.Spec.NodeName = "node3"
			if _, err := client.AppsV1().Deployments("default").Create(t.Context(), pods, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			var sample []string
			next := first
			for n := range services {
				s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("hello-%d", n)}, Spec: corev1.ServiceSpec{
					Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Port: 80}},
				}}
				sample = append(sample, next.String())
				for range each {
					s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, next.String())
					next = next.Next()
				}
				if _, err := client.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			announced := func(node string) (n int) {
				for _, a := range reportOf(c.Name, node).Addresses {
					if a.Protocol == protocol && !a.Since.IsZero() {
						n++
					}
				}
				return n
			}
			all := map[string]int{announce.Layer2: services * each, announce.BGP: 3 * services * each}[protocol]
			wait := func(what string, check func() (bool, string)) {
				t.Helper()
				for late := range wait.Tries(2 * time.Minute) {
					ok, said := check()
					if ok {
						return
					}
					if late {
						t.Fatalf("%s: %s", what, said)
					}
				}
			}
			wait("all are announced", func() (bool, string) {
				n := []int{announced("node1"), announced("node2"), announced("node3")}
				return n[0]+n[1]+n[2] == all && n[0] > services*each/20, fmt.Sprint(n)
			})
			p := connectAll(t, c.Name, 200/len(sample), sample)
			newcomers := keepConnecting(t, c.Name, sample)
			began := time.Now()
			_, said, code := fairway("drain", "node1", "--wait", "--timeout", "20s", "--kubeconfig", lab.Kubeconfig(c.Name))
			if n := announced("node1"); n > 0 {
				t.Fatalf("node1 still announces %d addresses: %s", n, said)
			}
			t.Logf("%d addresses, drained: exit code %d after %v: %s", services*each, code, time.Since(began), strings.TrimSpace(said))
			if protocol == announce.Layer2 {
				wait("others announce all", func() (bool, string) {
					n := []int{announced("node2"), announced("node3")}
					return n[0]+n[1] == all, fmt.Sprint(n)
				})
			}
			p.allGoOn(t, "node1 is drained")
			newcomers()
		})
	}
}

// reportOf is what a node's agent says of announcing; empty if it doesn't answer.
func reportOf(name, node string) (report announce.Report) {
	out, _, code := fairway("lab", "exec", "--name", name, node, "--", "curl", "-sS", "-m", "10", "http://127.0.0.1:10249/announce")
	if code != 0 || json.Unmarshal([]byte(out), &report) != nil {
		return announce.Report{}
	}
	return report
}
