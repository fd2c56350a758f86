package lab_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// causesOnNodes are those that are provoked on the nodes: each is taken back before the next.
func causesOnNodes(t *testing.T, d doctored, client kubernetes.Interface, c lab.Config, node1 *netns.NS) {
	t.Helper()
	node2, err := netns.Open(topology.HostNamespace(c.Name, "node2"))
	if err != nil {
		t.Fatal(err)
	}
	defer node2.Close() //nolint:errcheck // of a test
	pod := podOn(t, client, "node1")
	asPod := " --from pod/" + pod.Name

	d.ranged(client)
	d.finds("FW115", "svc/ranged --from 198.51.100.9 --node node1")
	d.finds("FW111", "svc/healthy --from pod/"+d.outsider(client))

	forget := rules(t, node1, "chain o {\n type filter hook output priority -500\n udp dport 53 drop\n}\nchain p {\n type filter hook prerouting priority -500\n udp dport 53 drop\n}")
	d.finds("FW110", "svc/healthy --node node1")
	d.finds("FW110", "svc/healthy"+asPod)
	forget()
	forget = rules(t, node1, "chain p {\n type filter hook prerouting priority -500\n meta l4proto { tcp, udp } th dport 53 drop\n}")
	d.finds("FW110", "svc/healthy"+asPod) // of pods alone: the node's own packets don't pass it
	forget()

	forget = rules(t, node2, "chain f {\n type filter hook forward priority 10; policy drop;\n ct state established accept\n}")
	d.finds("FW117", "svc/healthy") // a node that only packets of some clients pass
	forget()
	forget = rules(t, node2, "chain f {\n type filter hook forward priority 10\n tcp dport 80 reject with icmpx admin-prohibited\n}")
	d.finds("FW118", "svc/healthy"+asPod) // the endpoint's node says so
	forget()
	forget = rules(t, node1, "chain f {\n type filter hook forward priority 10\n meta length > 1200 drop\n}")
	d.finds("FW128", "svc/healthy"+asPod)
	forget()

	route := strings.TrimSpace(run(t, node1, "ip route show 10.244.2.0/24"))
	run(t, node1, "ip route replace unreachable 10.244.2.0/24")
	d.finds("FW129", "svc/healthy --node node1")
	run(t, node1, "ip route replace blackhole 10.244.2.0/24")
	d.finds("FW129", "svc/healthy"+asPod)
	run(t, node1, "ip route replace "+route)
	forget = rules(t, node2, "chain p {\n type filter hook prerouting priority -500\n iifname eth0 ip saddr 172.30.0.0/16 ip daddr 10.244.0.0/16 drop\n}")
	d.finds("FW129", "svc/healthy --node node1")
	forget()

	forget = rules(t, node2, "chain p {\n type filter hook prerouting priority -500\n iifname eth0 ip length > 1000 drop\n}")
	d.finds("FW128", "svc/healthy --node node1")
	forget()

	forget = rules(t, node1, "chain f {\n type filter hook forward priority 10\n tcp dport 80 reject with icmpx admin-prohibited\n}")
	d.finds("FW118", "svc/healthy --node node1")
	forget()

	if c.Mode == "nftables" || c.Mode == "iptables" { // others have their own tables, or no packet of a pod to itself
		own := strings.TrimSpace(run(t, node1, "ip -o route get "+pod.Status.PodIP))
		_, rest, _ := strings.Cut(own, " dev ")
		device, _, _ := strings.Cut(rest, " ")
		forget = rules(t, node1, "chain f {\n type filter hook forward priority 10\n iifname "+device+" oifname "+device+" drop\n}")
		d.finds("FW125", "svc/healthy"+asPod)
		forget()

		s, err := client.CoreV1().Services("default").Get(t.Context(), "healthy", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		flow := " -p tcp -s " + pod.Status.PodIP + " -d " + s.Spec.ClusterIP + " --sport 5353 --dport 80"
		run(t, node1, "conntrack -I"+flow+" --timeout 100 --state SYN_SENT -r "+s.Spec.ClusterIP+" -q "+pod.Status.PodIP+" --reply-port-src 80 --reply-port-dst 5353")
		d.finds("FW127", "svc/healthy"+asPod)
		run(t, node1, "conntrack -D"+flow)
	}
	d.finds("", "svc/healthy"+asPod)
	kernelCauses(t, d, client, c.Mode, node1)
}

// ranged makes a Service of a load balancer that lets some clients in.
func (d doctored) ranged(client kubernetes.Interface) {
	d.Helper()
	s, err := client.CoreV1().Services("default").Create(d.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "ranged"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"203.0.113.0/24"},
			Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.80"}}
		_, err = client.CoreV1().Services("default").UpdateStatus(d.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		d.Fatal(err)
	}
}

// outsider makes a pod that asks other nameservers.
func (d doctored) outsider(client kubernetes.Interface) string {
	d.Helper()
	p, err := client.CoreV1().Pods("default").Create(d.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "outsider"},
		Spec: corev1.PodSpec{
			NodeName: "node1", DNSPolicy: corev1.DNSDefault,
			Containers: []corev1.Container{{Name: "c", Image: "hello", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	eventually(d.T, "the pod has an address", func() bool {
		p, err = client.CoreV1().Pods("default").Get(d.Context(), p.Name, metav1.GetOptions{})
		return err == nil && p.Status.PodIP != ""
	})
	return p.Name
}

// podOn is a pod of a node.
func podOn(t *testing.T, client kubernetes.Interface, node string) corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, LabelSelector: "app=hello"})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("pods of %s: %v, error %v", node, list, err)
	}
	return list.Items[0]
}

// rules has a node's nf_tables have a table of somebody's.
func rules(t *testing.T, node *netns.NS, chains string) (remove func()) {
	t.Helper()
	change := func(text string) {
		t.Helper()
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader(text)
		if err := errors.Join(node.Start(c), c.Wait()); err != nil {
			t.Fatalf("nft: %v: %s", err, text)
		}
	}
	change("table inet somebody {\n" + chains + "\n}\n")
	return func() { change("delete table inet somebody\n") }
}

// run runs a command in a node's network namespace.
func run(t *testing.T, node *netns.NS, command string) string {
	t.Helper()
	words := strings.Fields(command)
	c := exec.Command(words[0], words[1:]...)
	var out strings.Builder
	c.Stdout = &out
	if err := errors.Join(node.Start(c), c.Wait()); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return out.String()
}
