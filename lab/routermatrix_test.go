//go:build routers

package lab_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab"
)

// matrix is a lab with FRR, whose settings are changed one after the other.
type matrix struct {
	*testing.T
	name    string
	client  kubernetes.Interface
	metallb *kube.MetalLB
}

// TestRouterMatrix: what BGPPeers, BGPAdvertisements and annotations ask for is
// what FRR takes in.
func TestRouterMatrix(t *testing.T) {
	c := config("matrix")
	c.Mode, c.Router = "nftables", lab.RouterFRR
	c.LoadBalancerRanges = []string{"10.99.0.0/24", "fd00:99::/112"}
	up(t, c)
	exposeHello(t, c.Name)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	metallb := metallbClient(t, c.Name)
	m := &matrix{t, c.Name, client, metallb}
	m.Run("communities", func(t *testing.T) { m.in(t).communities() })
	m.Run("annotations", func(t *testing.T) { m.in(t).annotations() })
	m.Run("aggregation", func(t *testing.T) { m.in(t).aggregation() })
	m.Run("local endpoints", func(t *testing.T) { m.in(t).localEndpoints() })
	m.Run("beside pools", func(t *testing.T) { m.in(t).besidePools() })
	m.Run("both families in one session", func(t *testing.T) { m.in(t).bothFamilies() })
	m.Run("any AS number of another", func(t *testing.T) { m.in(t).external() })
	m.Run("password", func(t *testing.T) { m.in(t).password() })
	m.Run("iBGP", func(t *testing.T) { m.in(t).internal() })
	m.Run("graceful restart", func(t *testing.T) { m.in(t).gracefulRestart() })
}

func (m *matrix) in(t *testing.T) *matrix { return &matrix{t, m.name, m.client, m.metallb} }

// vtysh has FRR do commands and returns what it says.
func (m *matrix) vtysh(commands ...string) string {
	m.Helper()
	args := []string{"lab", "exec", "--name", m.name, "router", "--", "vtysh", "--vty_socket", lab.RouterDir(m.name)}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out, errors, code := fairway(args...)
	if code != 0 {
		m.Fatalf("vtysh %q: %s%s", commands, out, errors)
	}
	return out
}

// configure changes FRR's sessions with the nodes, by a part of a command.
func (m *matrix) configure(format string) {
	m.Helper()
	commands := []string{"configure terminal", fmt.Sprintf("router bgp %d", lab.RouterASN)}
	for _, node := range []string{"172.30.0.11", "172.30.0.12"} {
		commands = append(commands, fmt.Sprintf(format, node))
	}
	m.vtysh(commands...)
}

// shows waits until FRR's route to a prefix has all these texts.
func (m *matrix) shows(prefix string, wants ...string) {
	m.Helper()
	family := "ipv4"
	if strings.Contains(prefix, ":") {
		family = "ipv6"
	}
	last := ""
	for range wait.Tries(waitTimeout) {
		last = m.vtysh("show bgp " + family + " unicast " + prefix)
		if !slices.ContainsFunc(wants, func(w string) bool { return !strings.Contains(last, w) }) {
			return
		}
	}
	m.Fatalf("the route to %s has not %q:\n%s\n%s", prefix, wants, last, sessionsOf(m.T, m.name, "node1"))
}

func (m *matrix) patch(resource, name, body string) {
	m.Helper()
	client := m.metallb.V1beta1
	if resource == "bgppeers" {
		client = m.metallb.V1beta2
	}
	err := client.Patch(types.MergePatchType).Namespace(v1beta1.DefaultNamespace).Resource(resource).Name(name).Body([]byte(body)).Do(m.Context()).Error()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *matrix) patchService(body string) {
	m.Helper()
	if _, err := m.client.CoreV1().Services("default").Patch(m.Context(), "hello", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		m.Fatal(err)
	}
}

func (m *matrix) communities() {
	m.patch("bgpadvertisements", "lab", `{"spec":{"communities":["65000:1","large:1:2:3"]}}`)
	m.shows("10.99.0.1/32", "Community: 65000:1", "Large Community: 1:2:3")
	m.shows("fd00:99::1/128", "Community: 65000:1", "Large Community: 1:2:3")
}

func (m *matrix) annotations() {
	m.patchService(`{"metadata":{"annotations":{"fairway.dev/bgp-prepend":"2","fairway.dev/bgp-communities":"65000:7"}}}`)
	m.shows("10.99.0.1/32", "64512 64512 64512", "65000:7")
	m.patchService(`{"metadata":{"annotations":{"fairway.dev/bgp-prepend":null,"fairway.dev/bgp-communities":null}}}`)
}

func (m *matrix) aggregation() {
	m.patch("bgpadvertisements", "lab", `{"spec":{"aggregationLength":24,"aggregationLengthV6":112}}`)
	m.shows("10.99.0.0/24", "2 available")
	m.shows("fd00:99::/112", "2 available")
	eventually(m.T, "the router still reaches the address", func() bool { return reachesHello(m.name, "10.99.0.1") })
	m.patch("bgpadvertisements", "lab", `{"spec":{"aggregationLength":32,"aggregationLengthV6":128}}`)
	m.shows("10.99.0.1/32", "2 available")
}

func (m *matrix) localEndpoints() {
	m.patchService(`{"spec":{"externalTrafficPolicy":"Local"}}`)
	m.shows("10.99.0.1/32", "LB:64512:1000000")
	m.patchService(`{"spec":{"externalTrafficPolicy":"Cluster"}}`)
}

// besidePools has nodes announce external IPs, cluster IPs, and the ranges of these and
// of pods.
func (m *matrix) besidePools() {
	m.patchService(`{"spec":{"externalIPs":["203.0.113.7"]}}`)
	beside := fmt.Sprintf(`{"apiVersion":"metallb.io/v1beta1","kind":"BGPAdvertisement","metadata":{"name":"beside","annotations":{%q:
		"external-ips,cluster-ips,service-ranges,pod-ranges"}}}`, announce.AnnotationAnnounce)
	resource := m.metallb.V1beta1.Post().Namespace(v1beta1.DefaultNamespace).Resource("bgpadvertisements").SetHeader("Content-Type", "application/json")
	if err := resource.Body([]byte(beside)).Do(m.Context()).Error(); err != nil {
		m.Fatal(err)
	}
	service, err := m.client.CoreV1().Services("default").Get(m.Context(), "hello", metav1.GetOptions{})
	if err != nil {
		m.Fatal(err)
	}
	for _, prefix := range []string{"203.0.113.7/32", service.Spec.ClusterIP + "/32", "10.96.0.0/16", "fd00:10:96::/112"} {
		m.shows(prefix, "2 available")
	}
	m.shows("10.244.1.0/24", "1 available", "172.30.0.11")
	m.shows("fd00:10:244:2::/64", "1 available", "fd00:172:30::c")
	for _, address := range []string{"203.0.113.7", service.Spec.ClusterIP} {
		eventually(m.T, address+" is reached", func() bool { return reachesHello(m.name, address) })
	}
	m.patch("bgpadvertisements", "beside", fmt.Sprintf(`{"metadata":{"annotations":{%q:"external-ips"}}}`, announce.AnnotationAnnounce))
	eventually(m.T, "what is no longer named is withdrawn", func() bool {
		return !strings.Contains(m.vtysh("show bgp ipv4 unicast"), "10.96.0.0") && !strings.Contains(m.vtysh("show bgp ipv4 unicast"), "10.244.1.0")
	})
	m.shows("203.0.113.7/32", "2 available")
	m.patchService(`{"spec":{"externalIPs":null}}`)
}

func (m *matrix) bothFamilies() {
	m.patch("bgppeers", "router-ipv6", `{"spec":{"nodeSelectors":[{"matchLabels":{"none":"such"}}]}}`)
	m.patch("bgppeers", "router-ipv4", `{"spec":{"dualStackAddressFamily":true}}`)
	m.shows("fd00:99::1/128", "2 available", "fd00:172:30::b", "from 172.30.0.11")
	eventually(m.T, "reached by IPv6", func() bool { return reachesHello(m.name, "fd00:99::1") })
}

func (m *matrix) password() {
	m.patch("bgppeers", "router-ipv4", `{"spec":{"passwordSecret":{"name":"session"}}}`)
	eventually(m.T, "the missing Secret is said", func() bool {
		state := &v1beta1.ConfigurationState{}
		err := m.metallb.V1beta1.Get().Namespace(v1beta1.DefaultNamespace).Resource("configurationstates").Name("speaker-node1").Do(m.Context()).Into(state)
		return err == nil && strings.Contains(state.Status.ErrorSummary, "there is no Secret session")
	})
	m.configure(" neighbor %s password s3cret")
	if _, err := m.client.CoreV1().Secrets(v1beta1.DefaultNamespace).Create(m.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "session"}, Type: corev1.SecretTypeBasicAuth, StringData: map[string]string{"username": "", "password": "s3cret"},
	}, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
	m.shows("10.99.0.1/32", "2 available")
}

// external has nodes take any AS number but their own; how often they dial anew makes no
// difference to what the router is told.
func (m *matrix) external() {
	m.patch("bgppeers", "router-ipv4", `{"spec":{"peerASN":null,"dynamicASN":"internal","connectTime":"1s"}}`)
	eventually(m.T, "an AS number of another is refused", func() bool {
		return strings.Contains(sessionsOf(m.T, m.name, "node1"), "spec.dynamicASN does not allow")
	})
	m.patch("bgppeers", "router-ipv4", `{"spec":{"dynamicASN":"external"}}`)
	m.shows("10.99.0.1/32", "2 available", fmt.Sprint(lab.NodesASN))
}

func (m *matrix) internal() {
	m.configure(fmt.Sprintf(" neighbor %%s remote-as %d", lab.RouterASN))
	m.patch("bgppeers", "router-ipv4", fmt.Sprintf(`{"spec":{"localASN":%d,"peerASN":null,"dynamicASN":"internal"}}`, lab.RouterASN))
	m.patch("bgpadvertisements", "lab", `{"spec":{"localPref":333}}`)
	m.shows("10.99.0.1/32", "localpref 333", "2 available")
}

// gracefulRestart kills an agent; the router keeps its routes until it is back.
func (m *matrix) gracefulRestart() {
	m.patch("bgppeers", "router-ipv4", `{"spec":{"nodeSelectors":[{"matchLabels":{"none":"such"}}]}}`)
	m.makeGraceful()
	m.shows("10.99.0.1/32", "2 available")
	m.shows("10.99.0.1/32", "localpref 333")
	before := establishedSince(m.T, m.name, "node1")
	if out, errors, code := fairway("lab", "exec", "--name", m.name, "node1", "--", "sh", "-c", "kill -9 $(ss -Hltnp sport = :10249 | sed 's/.*pid=\\([0-9]*\\).*/\\1/')"); code != 0 {
		m.Fatalf("kill the agent: %s%s", out, errors)
	}
	for deadline := time.Now().Add(waitTimeout); ; {
		if nextHops(m.T, m.name, "10.99.0.1") != 2 {
			m.Fatal("the router forgot the routes of an agent that was killed")
		}
		if now := establishedSince(m.T, m.name, "node1"); now.After(before) {
			return
		}
		if time.Now().After(deadline) {
			m.Fatalf("the session does not come back: %s", sessionsOf(m.T, m.name, "node1"))
		}
	}
}

// makeGraceful makes a BGPPeer with graceful restart.
func (m *matrix) makeGraceful() {
	m.Helper()
	peer := fmt.Sprintf(`{"apiVersion":"metallb.io/v1beta2","kind":"BGPPeer","metadata":{"name":"graceful"},"spec":{"myASN":%d,"peerASN":%d,
		"peerAddress":"172.30.99.1","password":"s3cret","enableGracefulRestart":true}}`, lab.RouterASN, lab.RouterASN)
	err := m.metallb.V1beta2.Post().Namespace(v1beta1.DefaultNamespace).Resource("bgppeers").SetHeader("Content-Type", "application/json").Body([]byte(peer)).Do(m.Context()).Error()
	if err != nil {
		m.Fatal(err)
	}
}

// establishedSince is when the last session of a node was established; zero if its
// agent does not answer.
func establishedSince(t *testing.T, name, node string) (since time.Time) {
	t.Helper()
	out, _, code := fairway("lab", "exec", "--name", name, node, "--", "curl", "-sS", "-m", "2", "http://127.0.0.1:10249/announce")
	var report announce.Report
	if code != 0 || json.Unmarshal([]byte(out), &report) != nil {
		return time.Time{}
	}
	for _, s := range report.Sessions {
		if s.Since.After(since) {
			since = s.Since
		}
	}
	return since
}
