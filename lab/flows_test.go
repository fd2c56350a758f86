package lab_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/test/wait"
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
			conn, err = net.DialTimeout("tcp", to.String(), waitTimeout)
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

// flowRecord is what the tests read of a line of flows.
type flowRecord struct {
	Node, ClientName, Service, Pod, Verdict, Reason, Protocol string
	Client, Frontend, Endpoint                                netip.AddrPort
	Bytes                                                     *struct{ In, Out uint64 }
}

// following is a `fairway flows --follow` that runs.
type following struct {
	*exec.Cmd
	mu   sync.Mutex
	seen []flowRecord
}

func follow(t *testing.T, kubeconfig string) *following {
	t.Helper()
	f := &following{Cmd: exec.Command(os.Args[0], "flows", "--kubeconfig", kubeconfig, "-f", "-o", "json")}
	f.Stderr = os.Stderr
	out, err := f.StdoutPipe()
	if err == nil {
		err = f.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r flowRecord
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				f.mu.Lock()
				f.seen = append(f.seen, r)
				f.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { _ = f.Process.Kill() })
	return f
}

func (f *following) has(match func(flowRecord) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.seen, match)
}

// TestFlows: flows follows connections of a pod and of a node in both families, with
// their ends, and those that are refused, with the reason, in every mode. Nothing of it is
// left when it is killed.
func TestFlows(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "ebpf", "userspace"} {
		t.Run(mode, func(t *testing.T) {
			l := traceIn(t, mode)
			showsFlows(l.T, l.client, l.kubeconfig, l.node1)
			if n := l.watching(); n != 0 {
				t.Errorf("%d links while nobody reads", n)
			}
			f := follow(t, l.kubeconfig)
			for _, ip := range l.services {
				l.shown(f, l.podNS, "default/"+l.pod, ip)
				l.shown(f, l.node1, "node1", ip)
			}
			l.refusedFlow(f, l.service("unready"), 80, "the Service port has no endpoint to use")
			l.refusedFlow(f, l.services[0], 81, "nothing serves this port of a Service address")
			if l.watching() == 0 {
				t.Error("nothing is attached")
			}
			if err := f.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "nothing is attached any more", func() bool { return l.watching() == 0 })
		})
	}
}

// shown: a connection is told of as it begins and as it ends.
func (l *tracing) shown(f *following, from *netns.NS, name string, ip netip.Addr) {
	l.Helper()
	told := func(client netip.AddrPort, verdicts ...string) bool {
		return f.has(func(r flowRecord) bool {
			return r.Client == client && r.ClientName == name && r.Node == "node1" && r.Service == "default/healthy:http" &&
				strings.HasPrefix(r.Pod, "default/hello-") && slices.Contains(verdicts, r.Verdict)
		})
	}
	var client netip.AddrPort
	eventually(l.T, fmt.Sprintf("a connection of %s to %s is told of", name, ip), func() bool {
		if err := from.Do(func() error {
			conn, err := net.DialTimeout("tcp", target(ip), waitTimeout)
			if err != nil {
				return err
			}
			client = conn.LocalAddr().(*net.TCPAddr).AddrPort()
			_, err = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
			for buffer := make([]byte, 512); err == nil; {
				_, err = conn.Read(buffer)
			}
			return errors.Join(conn.Close())
		}); err != nil {
			l.Fatal(err)
		}
		for range wait.Tries(400 * time.Millisecond) {
			if told(client, "forwarded", "answered") {
				return true
			}
		}
		return false
	})
	if l.conntrackEnds() {
		return // conntrack forgets it in two minutes
	}
	eventually(l.T, fmt.Sprintf("the end of %s's connection to %s is told of", name, ip), func() bool { return told(client, "ended") })
}

// refusedFlow: a connection that is refused is told of, with the reason.
func (l *tracing) refusedFlow(f *following, ip netip.Addr, port uint16, reason string) {
	l.Helper()
	eventually(l.T, fmt.Sprintf("the refusal of %s port %d is told of", ip, port), func() bool {
		_ = l.podNS.Do(func() error {
			conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(ip, port).String(), time.Second)
			if err == nil {
				err = conn.Close()
			}
			return err
		}) // it is refused
		for range wait.Tries(100 * time.Millisecond) { // its line comes after the answer
			if f.has(func(r flowRecord) bool {
				return r.Verdict == "refused" && r.Reason == reason && r.Frontend == netip.AddrPortFrom(ip, port) && r.ClientName == "default/"+l.pod
			}) {
				return true
			}
		}
		return false
	})
}

// watching counts what node1's agent has attached to the kernel in order to watch.
func (l *tracing) watching() (n int) {
	l.Helper()
	status, err := agentlink.New(filepath.Join(filepath.Dir(l.kubeconfig), "node1", agentlink.SocketName)).Status(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", status.PID))
	if err != nil {
		l.Fatal(err)
	}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && to == "anon_inode:bpf_link" {
			n++
		}
	}
	return n
}
