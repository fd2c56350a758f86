package lab_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab"
)

// TestRouters: a real router hears of a Service's addresses from every node, sends
// the client's connections to all of them, and to none that is drained or cut off.
func TestRouters(t *testing.T) {
	for _, kind := range []string{lab.RouterFRR, lab.RouterBird} {
		t.Run(kind, func(t *testing.T) {
			c := config(kind)
			c.Mode, c.Router = "nftables", kind
			c.LoadBalancerRanges = []string{"10.99.0.1-10.99.0.9", "fd00:99::1-fd00:99::9"}
			up(t, c)
			exposeHello(t, c.Name)
			hosts := []string{"10.99.0.1", "fd00:99::1"}
			for _, host := range hosts {
				eventually(t, host+" is reached", func() bool { return reachesHello(c.Name, host) })
				eventually(t, "both nodes announce "+host, func() bool { return nextHops(t, c.Name, host) == 2 })
			}
			if out, errors, code := fairway("drain", "node1", "--wait", "--kubeconfig", lab.Kubeconfig(c.Name)); code != 0 {
				t.Fatalf("drain: %s%s", out, errors)
			}
			for _, host := range hosts {
				eventually(t, "only node2 announces "+host, func() bool { return nextHops(t, c.Name, host) == 1 })
				eventually(t, host+" is reached by way of node2", func() bool { return reachesHello(c.Name, host) })
			}
			if out, errors, code := fairway("drain", "node1", "--undo", "--kubeconfig", lab.Kubeconfig(c.Name)); code != 0 {
				t.Fatalf("drain --undo: %s%s", out, errors)
			}
			watchByBFD(t, c.Name)
			eventually(t, "BFD is up", func() bool { return strings.Count(sessionsOf(t, c.Name, "node1"), "Established up") == 2 })
			eventually(t, "both nodes announce again", func() bool { return nextHops(t, c.Name, hosts[0]) == 2 })
			if _, errors, code := fairway("lab", "exec", "--name", c.Name, "node2", "--", "ip", "link", "set", "eth0", "down"); code != 0 {
				t.Fatal(errors)
			}
			eventually(t, "the router leaves out the node that is cut off", func() bool { return nextHops(t, c.Name, hosts[0]) == 1 })
		})
	}
}

// exposeHello makes a Service of type LoadBalancer with a pod on each node.
func exposeHello(t *testing.T, name string) {
	t.Helper()
	client, err := lab.Client(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hello", Annotations: map[string]string{v1beta1.AnnotationLoadBalancerIPs: "10.99.0.1,fd00:99::1"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func reachesHello(name, host string) bool {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	out, _, code := fairway("lab", "exec", "--name", name, "client", "--", "curl", "-sS", "-m", "2", "http://"+host+"/")
	return code == 0 && strings.Contains(out, "hostname")
}

// nextHops counts the nodes that the router would send packets for an address to.
func nextHops(t *testing.T, name, host string) int {
	t.Helper()
	family := "-4"
	if strings.Contains(host, ":") {
		family = "-6"
	}
	out, errors, code := fairway("lab", "exec", "--name", name, "router", "--", "ip", "-j", family, "route", "show", host)
	if code != 0 {
		t.Fatalf("routes of the router: %s", errors)
	}
	var routes []struct {
		Gateway  string            `json:"gateway"`
		Nexthops []json.RawMessage `json:"nexthops"`
	}
	if err := json.Unmarshal([]byte(out), &routes); err != nil {
		t.Fatalf("routes of the router: %v: %s", err, out)
	}
	count := 0
	for _, r := range routes {
		count += len(r.Nexthops)
		if r.Gateway != "" {
			count++
		}
	}
	return count
}

// metallbClient writes objects of MetalLB's API as the lab's administrator.
func metallbClient(t *testing.T, name string) *kube.MetalLB {
	t.Helper()
	config, err := kube.Config(lab.Kubeconfig(name))
	if err != nil {
		t.Fatal(err)
	}
	metallb, err := kube.NewMetalLB(config)
	if err != nil {
		t.Fatal(err)
	}
	return metallb
}

// watchByBFD has all BGP sessions watched by BFD.
func watchByBFD(t *testing.T, name string) {
	t.Helper()
	metallb := metallbClient(t, name)
	profile := &v1beta1.BFDProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "BFDProfile"},
		ObjectMeta: metav1.ObjectMeta{Name: "fast", Namespace: v1beta1.DefaultNamespace},
		Spec:       v1beta1.BFDProfileSpec{TransmitInterval: ptr.To[uint32](100), ReceiveInterval: ptr.To[uint32](100), DetectMultiplier: ptr.To[uint32](50)},
	}
	if err := metallb.V1beta1.Post().Namespace(profile.Namespace).Resource("bfdprofiles").Body(profile).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	for _, peer := range []string{"router-ipv4", "router-ipv6"} {
		err := metallb.V1beta2.Patch(types.MergePatchType).Namespace(profile.Namespace).Resource("bgppeers").Name(peer).
			Body([]byte(`{"spec":{"bfdProfile":"fast"}}`)).Do(t.Context()).Error()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// sessionsOf is what a node's agent says of its sessions.
func sessionsOf(t *testing.T, name, node string) string {
	t.Helper()
	out, _, code := fairway("lab", "exec", "--name", name, node, "--", "curl", "-sS", "-m", "2", "http://127.0.0.1:10249/announce")
	var report announce.Report
	if code != 0 || json.Unmarshal([]byte(out), &report) != nil {
		return ""
	}
	var lines []string
	for _, s := range report.Sessions {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", s.Peer, s.State, s.BFD, s.LastError))
	}
	return strings.Join(lines, "\n")
}

// externalIPs is a configuration that has nodes announce external IPs.
var externalIPs = metav1.ObjectMeta{Name: "external", Namespace: v1beta1.DefaultNamespace, Annotations: map[string]string{announce.AnnotationAnnounce: "external-ips"}}
