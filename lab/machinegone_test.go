//go:build machinegone

package lab_test

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/fault"
	"github.com/fairway-net/fairway/lab/topology"
)

const (
	goneRounds = 50
	gonePort   = 9376
	// goneObserved is how long connections are opened after the cut, and gonePause between two: the
	// client has 28,000 ports, and one that is used again is led by what conntrack remembers.
	goneObserved = 1500 * time.Millisecond
	gonePause    = 10 * time.Millisecond
	// gonePorts is the first port that the client connects from: each is used once, below those
	// that the kernel takes by itself.
	gonePorts = 10_000
)

// TestMachineGone measures for how long after a machine has lost power new connections still go to
// its endpoint, which names no node: when the last of those was begun that failed and that the node
// which answers for the address led there, as its connection table says. On a busy machine others
// fail, too, whoever they go to; they are counted apart.
func TestMachineGone(t *testing.T) {
	c := config("machine-gone")
	c.Nodes, c.Mode, c.LoadBalancerRanges = 3, "nftables", []string{"172.30.200.1-172.30.200.9"}
	up(t, c)
	nodes := []string{"node1", "node2", "node3"}
	for _, node := range nodes {
		serveName(t, c.Name, node)
	}
	exposed := exposeNodes(t, c.Name, nodes)
	client, err := netns.Open(topology.HostNamespace(c.Name, "client"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // only dialed from
	answers := func(node string) func() bool {
		return func() bool {
			name, _ := askName(t.Context(), client, 0)
			return name == node
		}
	}
	for _, node := range nodes {
		eventually(t, node+" answers", answers(node))
	}
	owner := announcer(t, c.Name, "172.30.200.1")
	if owner == "" {
		owner = "node3" // whom announcer doesn't ask
	}
	at, err := netns.Open(topology.HostNamespace(c.Name, owner))
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close() //nolint:errcheck // only read from
	table, err := at.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	victims := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == owner })
	var late []time.Duration
	for round := range goneRounds {
		node := victims[round%len(victims)]
		began, all, failed := cutWhileAsked(t, c.Name, node, client, uint16(gonePorts+round*int(goneObserved/gonePause)*2))
		last, led := time.Duration(0), 0
		ledTo := destinations(t, table)
		for port, at := range began {
			if ledTo[port] == exposed[node] {
				last, led = max(last, at), led+1
			}
		}
		late = append(late, last)
		t.Logf("%s: %d of %d connections failed that were led there, the last begun after %s; %d others failed", node, led, all, last.Round(time.Millisecond), failed-led)
		if err := lab.MendNode(t.Context(), c.Name, node); err != nil {
			t.Fatal(err)
		}
		eventually(t, node+" answers again", answers(node))
		// A cut kills the agent, too. Without it there would be no majority for the next one.
		eventually(t, "the agent of "+node+" is there again", func() bool {
			_, _, code := fairway("lab", "exec", "--name", c.Name, node, "--", "curl", "-sSf", "-m", "2", "http://127.0.0.1:10256/healthz")
			return code == 0
		})
	}
	slices.Sort(late)
	t.Logf("%d times: p50 %s, p90 %s, p99 %s, at most %s", len(late), late[len(late)/2], late[len(late)*9/10], late[(len(late)*99-1)/100], late[len(late)-1])
}

// cutWhileAsked cuts a node's power while connections are opened, and returns when those were begun
// that failed, after the cut and by the client's port, how many there were, and how many of them
// failed.
func cutWhileAsked(t *testing.T, name, node string, client *netns.NS, port uint16) (fails map[uint16]time.Duration, all, failed int) {
	t.Helper()
	var asked sync.WaitGroup
	var mu sync.Mutex
	began := map[uint16]time.Time{}
	ticker := time.NewTicker(gonePause)
	defer ticker.Stop()
	var cut time.Time
	for start := time.Now(); cut.IsZero() || time.Since(cut) < goneObserved; <-ticker.C {
		if cut.IsZero() && time.Since(start) > 200*time.Millisecond {
			if err := lab.BreakNode(t.Context(), name, node, fault.Power); err != nil {
				t.Fatal(err)
			}
			cut = time.Now()
		}
		all++
		from := port + uint16(all)
		asked.Go(func() {
			at := time.Now()
			if _, err := askName(t.Context(), client, from); err != nil {
				mu.Lock()
				defer mu.Unlock()
				began[from] = at
			}
		})
	}
	asked.Wait()
	fails = map[uint16]time.Duration{}
	for from, at := range began {
		fails[from] = at.Sub(cut)
	}
	return fails, all, len(fails)
}

// destinations are the addresses to which connections are led, by the client's port.
func destinations(t *testing.T, table *netlink.Handle) map[uint16]string {
	t.Helper()
	flows, err := table.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	led := map[uint16]string{}
	for _, f := range flows {
		if f.Forward.DstIP.String() == "172.30.200.1" {
			led[f.Forward.SrcPort] = f.Reverse.SrcIP.String()
		}
	}
	return led
}

// askName asks at the Service's address who answers, from a port of the client's; 0 is any.
func askName(ctx context.Context, client *netns.NS, from uint16) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 900*time.Millisecond)
	defer cancel()
	err = client.Do(func() error {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{Port: int(from)}}
		conn, err := dialer.DialContext(ctx, "tcp", "172.30.200.1:80")
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // the answer counts
		if deadline, ok := ctx.Deadline(); ok {
			if err := conn.SetDeadline(deadline); err != nil {
				return err
			}
		}
		name, err = bufio.NewReader(conn).ReadString('\n')
		return err
	})
	return strings.TrimSpace(name), err
}

// serveName answers each connection at a node's own address with the node's name.
func serveName(t *testing.T, name, node string) {
	t.Helper()
	ns, err := netns.Open(topology.HostNamespace(name, node))
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	if err := ns.Do(func() (err error) {
		listener, err = net.ListenTCP("tcp", &net.TCPAddr{Port: gonePort})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		_ = ns.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(node + "\n"))
			_ = conn.Close()
		}
	}()
}

// exposeNodes makes a Service of processes of the nodes, as fairway expose --to does, and returns
// their addresses.
func exposeNodes(t *testing.T, name string, nodes []string) map[string]string {
	t.Helper()
	exposed := map[string]string{}
	client, err := lab.Client(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "names-1", Labels: map[string]string{discoveryv1.LabelServiceName: "names"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](gonePort)}},
	}
	for _, node := range nodes {
		n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() && a.Type == corev1.NodeInternalIP {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.Address}})
				exposed[node] = a.Address
			}
		}
	}
	if _, err := client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return exposed
}
