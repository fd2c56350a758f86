//go:build routers

package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/lab"
)

// TestBirdMatrix: what BGPPeers, BGPAdvertisements and annotations ask for is what bird takes
// in, as far as it has it.
func TestBirdMatrix(t *testing.T) {
	c := config("birdmatrix")
	c.Mode, c.Router = "nftables", lab.RouterBird
	c.LoadBalancerRanges = []string{"10.99.0.0/24", "fd00:99::/112"}
	up(t, c)
	exposeHello(t, c.Name)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	metallb := metallbClient(t, c.Name)
	m := &birdMatrix{&matrix{t, c.Name, client, metallb}}
	m.Run("communities", func(t *testing.T) { m.in(t).communities() })
	m.Run("annotations", func(t *testing.T) { m.in(t).annotations() })
	m.Run("aggregation", func(t *testing.T) { m.in(t).aggregation() })
	m.Run("local endpoints", func(t *testing.T) { m.in(t).localEndpoints() })
	m.Run("both families in one session", func(t *testing.T) { m.in(t).bothFamilies() })
	m.Run("password", func(t *testing.T) { m.in(t).password() })
	m.Run("iBGP", func(t *testing.T) { m.in(t).internal() })
	m.Run("graceful restart", func(t *testing.T) { m.in(t).gracefulRestart() })
}

// birdMatrix is a lab with bird, whose settings are changed one after the other.
type birdMatrix struct{ *matrix }

func (m *birdMatrix) in(t *testing.T) *birdMatrix { return &birdMatrix{m.matrix.in(t)} }

// birdc has bird do a command and returns what it says.
func (m *birdMatrix) birdc(command string) string {
	m.Helper()
	socket := filepath.Join(lab.RouterDir(m.name), "bird.ctl")
	out, errors, code := fairway("lab", "exec", "--name", m.name, "router", "--", "birdc", "-s", socket, command)
	if code != 0 && !strings.Contains(out, "Network not found") {
		m.Fatalf("birdc %q: %s%s", command, out, errors)
	}
	return out
}

// has waits until bird has so many routes to a prefix, with all these texts.
func (m *birdMatrix) has(prefix string, count int, wants ...string) {
	m.Helper()
	last := ""
	for range wait.Tries(waitTimeout) {
		last = m.birdc("show route " + prefix + " all")
		if strings.Count(last, "unicast [") == count && !slices.ContainsFunc(wants, func(w string) bool { return !strings.Contains(last, w) }) {
			return
		}
	}
	m.Fatalf("%s has not %d routes with %q:\n%s\n%s", prefix, count, wants, last, sessionsOf(m.T, m.name, "node1"))
}

// configure replaces a text in bird's configuration.
func (m *birdMatrix) configure(old, with string) {
	m.Helper()
	file := filepath.Join(lab.RouterDir(m.name), "bird.conf")
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), old) {
		m.Fatalf("bird.conf has no %q: %v", old, err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, with)), 0o644); err != nil {
		m.Fatal(err)
	}
	if out := m.birdc("configure"); !strings.Contains(out, "econfigur") {
		m.Fatalf("configure: %s", out)
	}
}

func (m *birdMatrix) communities() {
	m.patch("bgpadvertisements", "lab", `{"spec":{"communities":["65000:1","large:1:2:3"]}}`)
	for _, prefix := range []string{"10.99.0.1/32", "fd00:99::1/128"} {
		m.has(prefix, 2, "(65000,1)", "(1, 2, 3)")
	}
}

func (m *birdMatrix) annotations() {
	m.patchService(`{"metadata":{"annotations":{"fairway.dev/bgp-prepend":"2","fairway.dev/bgp-communities":"65000:7"}}}`)
	m.has("10.99.0.1/32", 2, "64512 64512 64512", "(65000,7)")
	m.patchService(`{"metadata":{"annotations":{"fairway.dev/bgp-prepend":null,"fairway.dev/bgp-communities":null}}}`)
}

func (m *birdMatrix) aggregation() {
	m.patch("bgpadvertisements", "lab", `{"spec":{"aggregationLength":24,"aggregationLengthV6":112}}`)
	m.has("10.99.0.0/24", 2)
	m.has("fd00:99::/112", 2)
	eventually(m.T, "the router still reaches the address", func() bool { return reachesHello(m.name, "10.99.0.1") })
	m.patch("bgpadvertisements", "lab", `{"spec":{"aggregationLength":32,"aggregationLengthV6":128}}`)
	m.has("10.99.0.1/32", 2)
}

// localEndpoints: nodes without one withdraw.
func (m *birdMatrix) localEndpoints() {
	m.patchService(`{"spec":{"externalTrafficPolicy":"Local"}}`)
	m.has("10.99.0.1/32", 2, "(unknown 0x4004, 64512, ")
	m.patchService(`{"spec":{"externalTrafficPolicy":"Cluster"}}`)
	m.has("10.99.0.1/32", 2)
}

func (m *birdMatrix) bothFamilies() {
	m.patch("bgppeers", "router-ipv6", `{"spec":{"nodeSelectors":[{"matchLabels":{"none":"such"}}]}}`)
	m.patch("bgppeers", "router-ipv4", `{"spec":{"dualStackAddressFamily":true}}`)
	m.has("fd00:99::1/128", 2, "fd00:172:30::b", "[node1_4 ")
	eventually(m.T, "reached by IPv6", func() bool { return reachesHello(m.name, "fd00:99::1") })
}

func (m *birdMatrix) password() {
	m.configure("  passive;\n", "  passive;\n  password \"s3cret\";\n")
	m.patch("bgppeers", "router-ipv4", `{"spec":{"password":"another"}}`)
	m.has("10.99.0.1/32", 0)
	m.patch("bgppeers", "router-ipv4", `{"spec":{"password":"s3cret"}}`)
	m.has("10.99.0.1/32", 2)
}

func (m *birdMatrix) internal() {
	m.configure("  passive;\n", "  passive;\n  direct;\n") // next hops are neighbors
	m.configure(fmt.Sprintf(" as %d;\n}", lab.NodesASN), fmt.Sprintf(" as %d;\n}", lab.RouterASN))
	m.patch("bgppeers", "router-ipv4", fmt.Sprintf(`{"spec":{"localASN":%d,"peerASN":null,"dynamicASN":"internal"}}`, lab.RouterASN))
	m.patch("bgpadvertisements", "lab", `{"spec":{"localPref":333}}`)
	m.has("10.99.0.1/32", 2, "BGP.local_pref: 333")
	m.patchService(`{"metadata":{"annotations":{"fairway.dev/bgp-prepend":"2","fairway.dev/bgp-communities":"65000:8"}}}`)
	m.has("10.99.0.1/32", 2, "(65000,8)") // and no path that looks like a loop
	m.patchService(`{"metadata":{"annotations":{"fairway.dev/bgp-prepend":null,"fairway.dev/bgp-communities":null}}}`)
}

// gracefulRestart kills an agent; bird, which is aware of graceful restart unless it is told
// otherwise, keeps its routes until it is back.
func (m *birdMatrix) gracefulRestart() {
	m.patch("bgppeers", "router-ipv4", `{"spec":{"nodeSelectors":[{"matchLabels":{"none":"such"}}]}}`)
	m.has("10.99.0.1/32", 0)
	m.makeGraceful()
	m.has("10.99.0.1/32", 2)
	before := establishedSince(m.T, m.name, "node1")
	killAgent(m.T, m.name, "node1")
	for deadline := time.Now().Add(waitTimeout); !establishedSince(m.T, m.name, "node1").After(before); {
		if nextHops(m.T, m.name, "10.99.0.1") != 2 {
			m.Fatal("the router forgot the routes of an agent that was killed")
		}
		if time.Now().After(deadline) {
			m.Fatalf("the session does not come back: %s", sessionsOf(m.T, m.name, "node1"))
		}
	}
}
