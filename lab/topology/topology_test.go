package topology_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab/echo"
	"github.com/fairway-net/fairway/lab/topology"
)

const waitTimeout = 30 * time.Second

// labName is unique to this process and test, so that tests may run anywhere.
func labName(suffix string) string { return fmt.Sprintf("test-%d-%s", os.Getpid(), suffix) }

func newLab(t *testing.T, name string) *topology.Lab {
	t.Helper()
	l, err := topology.New(name, topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func addNode(t *testing.T, l *topology.Lab, name string) *topology.Node {
	t.Helper()
	n, err := l.AddNode(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func addPod(t *testing.T, n *topology.Node, name string) *topology.Pod {
	t.Helper()
	p, err := n.AddPod(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answer starts an echo server on a host.
func answer(t *testing.T, h *topology.Host) {
	t.Helper()
	s, err := echo.Start(h.Name, []echo.Port{{Number: 7, Protocol: "TCP"}, {Number: 7, Protocol: "UDP"}}, h.Do)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// ask sends a line and returns the answer.
func ask(from *topology.Host, network string, to netip.Addr) (string, error) {
	var c net.Conn
	err := from.Do(func() (err error) {
		c, err = net.DialTimeout(network, netip.AddrPortFrom(to, 7).String(), waitTimeout)
		return err
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "who?\n"); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func TestEverybodyReachesEverybody(t *testing.T) {
	l := newLab(t, labName("reach"))
	node1, node2 := addNode(t, l, "node1"), addNode(t, l, "node2")
	pods := []*topology.Pod{addPod(t, node1, "a"), addPod(t, node1, "b"), addPod(t, node2, "c")}
	inside := []*topology.Host{node1.Host, node2.Host}
	for _, p := range pods {
		inside = append(inside, p.Host)
	}
	for _, h := range append(inside, l.Client()) {
		answer(t, h)
	}
	for _, network := range []string{"tcp", "udp"} {
		for family := range 2 {
			for _, from := range inside {
				for _, to := range inside {
					checkAnswer(t, network, from, to, family)
				}
			}
			for _, node := range []*topology.Host{node1.Host, node2.Host} {
				checkAnswer(t, network, l.Client(), node, family)
				checkAnswer(t, network, node, l.Client(), family)
			}
		}
	}
}

// checkAnswer wants the answer of to, which saw from's own address.
func checkAnswer(t *testing.T, network string, from, to *topology.Host, family int) {
	t.Helper()
	got, err := ask(from, network, to.Addresses[family])
	// A host that asks itself by an address uses that address, too.
	seen := from.Addresses[family].String()
	name, client, _ := strings.Cut(strings.TrimSpace(got), " ")
	host, _, splitErr := net.SplitHostPort(client)
	if err != nil || splitErr != nil || name != to.Name || host != seen {
		t.Errorf("%s %s to %s %v: %q, %v; want %s, seen as %s", network, from.Name, to.Name, to.Addresses[family], got, err, to.Name, seen)
	}
}

func TestClientRoute(t *testing.T) {
	l := newLab(t, labName("route"))
	node := addNode(t, l, "node1")
	pod := addPod(t, node, "a")
	answer(t, pod.Host)
	for family, network := range []string{"tcp4", "tcp6"} {
		if got, err := ask(l.Client(), network, pod.Addresses[family]); err == nil {
			t.Errorf("the client reaches a pod without a route: %q", got)
		}
		if err := l.Client().Route(node.PodCIDRs[family], node.Addresses[family]); err != nil {
			t.Fatal(err)
		}
		if got, err := ask(l.Client(), network, pod.Addresses[family]); err != nil || !strings.HasPrefix(got, "a ") {
			t.Errorf("the client with a route: %q, %v", got, err)
		}
	}
}

// TestUnderlayIsSilent sends it what leads nowhere, with a socket that is told of any
// error.
func TestUnderlayIsSilent(t *testing.T) {
	l := newLab(t, labName("silent"))
	underlay := l.Underlay().Addresses
	for i, to := range []string{"203.0.113.1", "2001:db8::1"} {
		a := netip.MustParseAddr(to)
		if err := l.Client().Route(netip.PrefixFrom(a, a.BitLen()), underlay[i]); err != nil {
			t.Fatal(err)
		}
		err := l.Client().Do(func() error { return told(net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 80))) })
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, want nothing to be heard", to, err)
		}
	}
}

// told sends a datagram and says what is heard.
func told(to *net.UDPAddr) error {
	conn, err := net.DialUDP("udp", nil, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if to.IP.To4() == nil {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) })
	if err := errors.Join(controlErr, err, conn.SetDeadline(time.Now().Add(300*time.Millisecond))); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func TestTwoLabs(t *testing.T) {
	one, two := newLab(t, labName("x")), newLab(t, labName("x-y"))
	pod1 := addPod(t, addNode(t, one, "node1"), "of-one")
	pod2 := addPod(t, addNode(t, two, "node1"), "of-two")
	if pod1.IPv4() != pod2.IPv4() {
		t.Fatalf("addresses differ: %v, %v", pod1.IPv4(), pod2.IPv4())
	}
	answer(t, pod1.Host)
	answer(t, pod2.Host)
	if err := one.Remove(); err != nil {
		t.Fatal(err)
	}
	got, err := ask(two.Nodes()[0].Host, "tcp", pod2.IPv4())
	if err != nil || !strings.HasPrefix(got, "of-two ") {
		t.Errorf("the second lab, after the first was removed: %q, %v", got, err)
	}
}

func TestPodAddresses(t *testing.T) {
	l := newLab(t, labName("addr"))
	node := addNode(t, l, "node1")
	a := addPod(t, node, "a")
	if _, err := node.AddPod("a"); err == nil {
		t.Error("the same pod twice")
	}
	if err := a.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := a.Remove(); err != nil {
		t.Errorf("removing a pod again: %v", err)
	}
	b := addPod(t, node, "a")
	if a.IPv4() == b.IPv4() {
		t.Errorf("%v was given out again at once", a.IPv4())
	}
	if want := "10.244.1.3 fd00:10:244:1::3 pod3"; fmt.Sprintf("%v %v %s", b.IPv4(), b.IPv6(), b.Interface) != want {
		t.Errorf("got %v %v %s, want %s", b.IPv4(), b.IPv6(), b.Interface, want)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	before := host(t)
	name := labName("leave")
	l, err := topology.New(name, topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	node := addNode(t, l, "node1")
	pod := addPod(t, node, strings.Repeat("long", 63))
	inCgroup, inPod := exec.Command("sleep", "1000"), exec.Command("sleep", "1000")
	if err := errors.Join(node.Start(inCgroup), pod.Start(inPod)); err != nil {
		t.Fatal(err)
	}
	cgroup, err := node.Cgroup()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), fmt.Append(nil, inCgroup.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := topology.New(name, topology.Options{}); err == nil {
		t.Error("a second lab of the same name was made")
	}
	if there, err := topology.Exists(name); err != nil || !there {
		t.Errorf("Exists: %v, %v", there, err)
	}
	// As another process would, which knows no more than the name.
	if err := topology.Remove(name); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{inCgroup, inPod} {
		if err := c.Wait(); err == nil || c.ProcessState.Exited() {
			t.Errorf("process %d ended with %v, not by a signal", c.Process.Pid, err)
		}
	}
	if there, err := topology.Exists(name); err != nil || there {
		t.Errorf("Exists after Remove: %v, %v", there, err)
	}
	if err := errors.Join(l.Remove(), l.Remove()); err != nil {
		t.Errorf("removing it again: %v", err)
	}
	if after := host(t); !slices.Equal(before, after) {
		t.Errorf("the host had %v, now has %v", before, after)
	}
}

// host is what a lab could leave on the machine: links and namespaces.
func host(t *testing.T) []string {
	t.Helper()
	links, err := kernel.List(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	state, err := netns.Names("fairway." + labName(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		state = append(state, l.Attrs().Name)
	}
	return state
}

func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "a.b", "A", "-a", strings.Repeat("x", 64)} {
		if _, err := topology.New(name, topology.Options{}); err == nil {
			t.Errorf("New(%q) succeeded", name)
		}
		if err := topology.Remove(name); err == nil {
			t.Errorf("Remove(%q) succeeded", name)
		}
	}
	l := newLab(t, labName("bad"))
	addNode(t, l, "node1")
	for _, name := range []string{"", "a.b", "node1", "client", "underlay", "pod"} {
		if _, err := l.AddNode(name); err == nil {
			t.Errorf("AddNode(%q) succeeded", name)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []topology.Options{
		{Pods4: netip.MustParsePrefix("10.0.0.0/24")},
		{Pods4: netip.MustParsePrefix("fd00::/56")},
		{Underlay6: netip.MustParsePrefix("fd00::/96")},
	} {
		if _, err := topology.New(labName("options"), o); err == nil {
			t.Errorf("New with %v succeeded", o)
		}
	}
}
