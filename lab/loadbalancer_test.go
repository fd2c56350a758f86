package lab_test

import (
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/internal/tcfilter"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// answers reports whether the program that answers for addresses is on a node's uplink: by
// tcx, or as a filter where the kernel has none.
func answers(t *testing.T, node *netns.NS) (there bool) {
	t.Helper()
	if err := node.Do(func() error {
		handle, err := node.Netlink(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		uplink, err := handle.LinkByName("eth0")
		if err != nil {
			return err
		}
		place := tcfilter.Place{Netlink: handle, Index: uplink.Attrs().Index, Side: tcfilter.Ingress, Priority: 0xfa0, Prefix: "fairway-l2"}
		there, err = tcfilter.First{Place: place, Program: "respond"}.IsThere()
		return err
	}); err != nil {
		t.Error(err)
	}
	return there
}

// TestLoadBalancer: a Service gets addresses of both families, and the client
// outside reaches it there, also when the node that announces them is drained.
func TestLoadBalancer(t *testing.T) {
	c := config("balance")
	c.Mode = "nftables"
	c.LoadBalancerRanges = []string{"172.30.200.1-172.30.200.9", "fd00:172:30::c801-fd00:172:30::c809"}
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"node1", "node2"} {
		ns, err := netns.Open(topology.HostNamespace(c.Name, node))
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close() //nolint:errcheck // only looked at
		eventually(t, node+" stands by before there is an address", func() bool { return answers(t, ns) })
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reached := func(host string) bool {
		out, _, code := fairway("lab", "exec", "--name", c.Name, "client", "--", "curl", "-sS", "-m", "2", "http://"+host+"/")
		return code == 0 && strings.Contains(out, "hostname")
	}
	hosts := []string{"172.30.200.1", "[fd00:172:30::c801]"}
	for _, host := range hosts {
		eventually(t, host+" is reached", func() bool { return reached(host) })
	}
	owner := announcer(t, c.Name, "172.30.200.1")
	if owner == "" {
		t.Fatal("nobody says that it announces 172.30.200.1")
	}
	if out, errors, code := fairway("drain", owner, "--wait", "--kubeconfig", lab.Kubeconfig(c.Name)); code != 0 {
		t.Fatalf("drain: %s%s", out, errors)
	}
	for _, host := range hosts {
		if !reached(host) {
			t.Errorf("%s is not reached after %s was drained", host, owner)
		}
	}
	eventually(t, "another node announces", func() bool {
		now := announcer(t, c.Name, "172.30.200.1")
		return now != "" && now != owner
	})
}

// announcer is the node whose agent says that it answers for an address.
func announcer(t *testing.T, name, address string) (node string) {
	t.Helper()
	for _, n := range []string{"node1", "node2"} {
		out, _, code := fairway("lab", "exec", "--name", name, n, "--", "curl", "-sS", "-m", "2", "http://127.0.0.1:10249/announce")
		var report announce.Report
		if code != 0 || json.Unmarshal([]byte(out), &report) != nil {
			continue
		}
		for _, a := range report.Addresses {
			if a.Address.String() == address && !a.Since.IsZero() {
				if node != "" {
					t.Errorf("%s and %s both answer for %s", node, n, address)
				}
				node = n
			}
		}
	}
	return node
}
