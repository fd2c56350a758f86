package lab_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/wait"
)

// cluster is a lab with no proxies but those that tests start, and what they have
// applied.
type cluster struct {
	lab      string
	binaries string // Kubernetes' own programs; "" where the API server is Fairway's
	nodes    []string
	client   kubernetes.Interface
	places   map[string]*place // node1, a pod on it, and the outside client
	services map[string]*corev1.Service
}

func newCluster(t *testing.T, binaries string) *cluster {
	t.Helper()
	config := config("cluster")
	config.Kubernetes = binaries
	up(t, config)
	client, err := lab.Client(config.Name)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{lab: config.Name, binaries: binaries, nodes: []string{"node1", "node2"}, client: client,
		places: map[string]*place{}, services: map[string]*corev1.Service{}}
	c.apply(t)
	c.open(t, "node1", topology.HostNamespace(c.lab, "node1"))
	c.open(t, "client", topology.HostNamespace(c.lab, "client"))
	c.open(t, "pod", topology.PodNamespace(c.lab, "default.asks"))
	return c
}

func (c *cluster) stateDir(node string) string { return lab.Dir(c.lab) + "/" + node }

func (c *cluster) cgroup(node string) string {
	path, err := topology.Cgroup(c.lab, node)
	if err != nil {
		return ""
	}
	return path
}

func (c *cluster) open(t *testing.T, name, namespace string) {
	t.Helper()
	ns, err := netns.Open(namespace)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{ns: ns}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	dir, err := topology.NodeCgroup(c.lab, ns)
	if err == nil && dir != "" {
		if p.sockets, err = cgroupsock.Start(dir); err == nil {
			t.Cleanup(func() {
				if err := p.sockets.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	c.places[name] = p
}

// healthy asks a node's proxy for its health.
func (c *cluster) healthy(t *testing.T, node string) bool {
	return c.get(t, node, "127.0.0.1:10256/healthz") == http.StatusOK
}

// get asks an HTTP server of a node, and tells the status; 0 if nobody answers.
func (c *cluster) get(t *testing.T, node, url string) (status int) {
	ns, err := netns.Open(topology.HostNamespace(c.lab, node))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: (&place{ns: ns}).dial, DisableKeepAlives: true}}
	resp, err := client.Get("http://" + url)
	if err != nil {
		return 0
	}
	if err := resp.Body.Close(); err != nil {
		return 0
	}
	return resp.StatusCode
}

// at is an address of a Service: its cluster IP of a family, or its node port
// at node1.
func (c *cluster) at(service, where string, port int) string {
	s := c.services[service]
	switch where {
	case "4":
		return net.JoinHostPort(s.Spec.ClusterIPs[0], "80")
	case "6":
		return net.JoinHostPort(s.Spec.ClusterIPs[1], "80")
	}
	return net.JoinHostPort("172.30.0.11", fmt.Sprint(s.Spec.Ports[port].NodePort))
}

// works checks Services of each sort from everywhere, until they do what they
// should or patience ends. kube-proxy calls itself healthy before all its rules are
// there, so the first may fail.
func (c *cluster) works(t *testing.T) {
	t.Helper()
	for late := range wait.Tries(patience) {
		err := c.try(t)
		if err == nil {
			return
		}
		if late {
			t.Fatal(err)
		}
		c.forgetAttempts(t)
	}
}

func (c *cluster) try(t *testing.T) error {
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=hello"})
	if err != nil {
		t.Fatal(err)
	}
	var all, local []string
	for _, p := range pods.Items {
		all = append(all, p.Name)
		if p.Spec.NodeName == "node1" {
			local = append(local, p.Name)
		}
	}
	for name, p := range c.places {
		for _, network := range []string{"tcp", "udp"} {
			for _, where := range []string{"4", "6", "node port"} {
				address := c.at("web", where, map[string]int{"tcp": 0, "udp": 1}[network])
				if err := p.meets(network, address, all); err != nil {
					return fmt.Errorf("web from %s: %s %s: %w", name, network, address, err)
				}
			}
		}
		if err := p.sticks(c.at("sticky", "4", 0)); err != nil {
			return fmt.Errorf("sticky from %s: %w", name, err)
		}
		if _, _, err := p.ask("tcp", c.at("nobody", "4", 0)); !isRefused(err) {
			return fmt.Errorf("nobody from %s: want it refused: %w", name, err)
		}
	}
	client := c.places["client"]
	if err := client.meets("tcp", c.at("local", "node port", 0), local); err != nil {
		return fmt.Errorf("local from outside: %w", err)
	}
	return nil
}

// isRefused tells whether a connection was refused at once.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// killAgent ends a node's agent with SIGKILL; the lab starts another one.
func killAgent(t *testing.T, name, node string) {
	t.Helper()
	dir, err := topology.FindCgroup(name, node)
	if err != nil {
		t.Skipf("NO CGROUPS HERE: processes of a lab can't be found: %v", err)
	}
	procs, err := os.ReadFile(filepath.Join(dir, "agent", "cgroup.procs"))
	killed := 0
	for _, text := range strings.Fields(string(procs)) {
		pid, _ := strconv.Atoi(text) // a number
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if err != nil || killed == 0 {
		t.Fatalf("kill the agent of %s: %d processes, %v", node, killed, err)
	}
}

// modes are those that need nothing that this kernel may lack.
var modes = []string{"nftables", "iptables", "ebpf", "userspace"}
