package lab_test

import (
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/controlplane"
	"github.com/fairway-net/fairway/lab/topology"
)

// What may be said in the environment: another fairway binary to take for the
// other build, such as one of an earlier release (this one's name is good where
// nothing can be built), and other modes, with commas between.
const (
	otherBuildEnv = "FAIRWAY_OTHER_BUILD"
	modesEnv      = "FAIRWAY_TEST_MODES"
)

func testModes() []string {
	if text := os.Getenv(modesEnv); text != "" {
		return strings.Split(text, ",")
	}
	return modes
}

// otherBuild is a fairway binary that isn't this one.
func otherBuild(t *testing.T) string {
	t.Helper()
	if file := os.Getenv(otherBuildEnv); file != "" {
		return file
	}
	file := filepath.Join(t.TempDir(), "fairway")
	build := exec.Command("go", "build", "-ldflags", "-s -w -X github.com/fairway-net/fairway/internal/version.Version=other", "-o", file, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile has it
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build another fairway: %v: %s", err, said)
	}
	if said, err := exec.Command(file, "version").Output(); err != nil || !strings.HasPrefix(string(said), "fairway other ") {
		t.Fatalf("the other build says that it is %q (%v)", said, err)
	}
	return file
}

// TestUpgrade kills agents outright, in every mode that this kernel has, and has
// those of another build take their places, and then the other way round.
// Meanwhile connections are made and others last.
func TestUpgrade(t *testing.T) {
	other := otherBuild(t)
	c := newCluster(t, "")
	for _, mode := range testModes() {
		t.Run(mode, func(t *testing.T) {
			this, next := build(mode, os.Args[0]), build(mode, other)
			agents := c.start(t, this)
			c.works(t)
			agents = c.upgrade(t, agents, next, true)
			agents = c.upgrade(t, agents, this, false)
			c.works(t)
			c.stop(t, agents)
			c.cleanUp(t)
		})
	}
}

// build is Fairway's agent as a binary has it.
func build(mode, binary string) proxy {
	p := fairwayProxy(mode)
	p.name = binary + " in " + mode + " mode"
	p.build = binary
	p.flags = []string{"--service-cidr", "10.96.0.0/16"} // or nobody refuses what isn't served
	return p
}

// upgrade kills agents and starts others, while the API server can't be reached if
// it shall be away. Of two Services, one goes and the other comes before the agents
// know: as long as they know nothing, all that the kernel holds is in force.
func (c *cluster) upgrade(t *testing.T, agents *running, next proxy, away bool) *running {
	t.Helper()
	c.expose(t, "old")
	c.eventuallyAll(t, "old is served", func(p *place) bool { return c.answers(p, "old") })
	load := c.load(t, true)
	c.flows(t, load)
	c.kill(t, agents)
	if away {
		c.reachAPI(t, false)
	}
	c.withdraw(t, "old")
	c.expose(t, "new")
	for range 10 {
		c.all(t, "old is served though there is no agent", func(p *place) bool { return c.answers(p, "old") })
	}
	agents = c.launch(t, next)
	if away {
		for _, node := range c.nodes {
			eventually(t, "the next agent of "+node+" isn't well yet", func() bool { return c.get(t, node, "127.0.0.1:10256/livez") == 503 })
		}
		for range 30 {
			c.all(t, "old is served though the agents know nothing", func(p *place) bool { return c.answers(p, "old") })
		}
		c.reachAPI(t, true)
	}
	for _, node := range c.nodes {
		eventually(t, next.name+" has programmed "+node, func() bool { return c.healthy(t, node) })
	}
	c.eventuallyAll(t, "new is served", func(p *place) bool { return c.answers(p, "new") })
	c.eventuallyAll(t, "old is refused", func(p *place) bool {
		_, _, err := p.ask("tcp", c.at("old", "4", 0))
		return isRefused(err)
	})
	c.withdraw(t, "new")
	load.check(t, "killed, and another build started", "")
	return agents
}

// kill ends a proxy without warning.
func (c *cluster) kill(t *testing.T, r *running) {
	t.Helper()
	for node, cmd := range r.commands {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // by the signal
		delete(r.commands, node)
	}
	happened(t, "%s is killed", r.name)
}

// expose makes a Service that the same pods serve, and withdraw removes it.
func (c *cluster) expose(t *testing.T, name string) {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
	}}
	made, err := c.client.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.services[name] = made
}

func (c *cluster) withdraw(t *testing.T, name string) {
	t.Helper()
	if err := c.client.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) answers(p *place, service string) bool {
	_, _, err := p.ask("tcp", c.at(service, "4", 0))
	return err == nil
}

func (c *cluster) all(t *testing.T, what string, ok func(*place) bool) {
	t.Helper()
	for name, p := range c.places {
		if !ok(p) {
			t.Errorf("from %s: not so: %s", name, what)
		}
	}
}

func (c *cluster) eventuallyAll(t *testing.T, what string, ok func(*place) bool) {
	t.Helper()
	for name, p := range c.places {
		eventually(t, "from "+name+": "+what, func() bool { return ok(p) })
	}
}

// flows adds UDP flows, each of one client's port, to a load.
func (c *cluster) flows(t *testing.T, b *busy) {
	t.Helper()
	for name, p := range c.places {
		for _, where := range []string{"4", "6", "node port"} {
			b.lasts(t, p, "udp", c.at("web", where, 1), waitTimeout, "established UDP flow from "+name)
		}
	}
}

// reachAPI lets the nodes reach the API server, or not.
func (c *cluster) reachAPI(t *testing.T, reach bool) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(nodeKubeconfig(c.lab))
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server)
	if err != nil {
		t.Fatal(err)
	}
	address := net.ParseIP(server.Hostname())
	route := &netlink.Route{Dst: &net.IPNet{IP: address, Mask: net.CIDRMask(32, 32)}, Type: unix.RTN_UNREACHABLE}
	change := map[bool]func(*netlink.Route) error{false: netlink.RouteAdd, true: netlink.RouteDel}[reach]
	for _, node := range c.nodes {
		ns, err := netns.Open(topology.HostNamespace(c.lab, node))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(ns.Do(func() error { return change(route) }), ns.Close()); err != nil {
			t.Fatal(err)
		}
	}
	happened(t, "the API server can be reached: %t", reach)
}

func nodeKubeconfig(name string) string { return filepath.Join(lab.Dir(name), "node.kubeconfig") }

// configure writes the configuration of a node's proxy, as kubeadm would.
func (c *cluster) configure(node, mode string) (string, error) {
	if c.binaries != "" {
		return lab.WriteProxyConfiguration(c.lab, node, mode)
	}
	file := filepath.Join(lab.Dir(c.lab), node+".conf")
	return file, os.WriteFile(file, []byte(c.configuration(mode)), 0o644)
}

func (c *cluster) configuration(mode string) string {
	pods := topology.DefaultOptions()
	return controlplane.ProxyConfiguration(nodeKubeconfig(c.lab), pods.Pods4.String()+","+pods.Pods6.String(), mode)
}
