package lab_test

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/netns"
)

// showsFlows: flows shows a connection in each family, with the names of both ends,
// and no other Service's.
func showsFlows(t *testing.T, client kubernetes.Interface, kubeconfig string, node1 *netns.NS) {
	t.Helper()
	s, err := client.CoreV1().Services("default").Get(t.Context(), "healthy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Spec.ClusterIPs) != 2 {
		t.Fatalf("cluster IPs %v, want two", s.Spec.ClusterIPs)
	}
	for _, ip := range s.Spec.ClusterIPs {
		to := netip.AddrPortFrom(netip.MustParseAddr(ip), 80)
		var conn net.Conn
		if err := node1.Do(func() (err error) {
			conn, err = net.DialTimeout("tcp", to.String(), patience)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		from := conn.LocalAddr().(*net.TCPAddr).AddrPort()
		eventually(t, "flows shows the connection to "+to.String(), func() bool {
			out, stderr, code := fairway("flows", "--kubeconfig", kubeconfig, "--service", "healthy", "--verdict", "answered", "-o", "json")
			if code != 0 {
				t.Fatalf("flows: %s%s", out, stderr)
			}
			for line := range strings.Lines(out) {
				var r struct {
					Node, ClientName, Service, Pod string
					Client                         netip.AddrPort
				}
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("flows: %v: %s", err, line)
				}
				if r.Service != "default/healthy:http" {
					t.Errorf("flows shows another Service: %s", line)
				}
				if r.Client == from && r.Node == "node1" && r.ClientName == "node1" && strings.HasPrefix(r.Pod, "default/hello-") {
					return true
				}
			}
			return false
		})
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
