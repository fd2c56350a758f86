//go:build traces

package lab_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/test/vm"
)

// TestTraceLegacy is TestTrace in iptables mode's old variant.
func TestTraceLegacy(t *testing.T) { tracesIn(t, legacyMode) }

// TestTraceIPVS: what netfilter sees around IPVS is told, and the endpoint that IPVS chose.
func TestTraceIPVS(t *testing.T) {
	vm.With(t, func(t *testing.T) {
		l := traceIn(t, "ipvs")
		for _, ip := range l.services {
			l.answered(ip)
			l.droppedByAnother(ip)
		}
		l.droppedElsewhere()
		l.watches()
		l.killed()
	}, "ip_vs", "dummy")
}

// tracesOfAMode is how many connections TestTraces follows in each mode.
var tracesOfAMode = map[string]int{"nftables": 400, "iptables": 300, legacyMode: 300}

// TestTraces: of a thousand connections in both families, the endpoint that a trace names is
// the pod that answered, each time.
func TestTraces(t *testing.T) {
	for mode, many := range tracesOfAMode {
		t.Run(mode, func(t *testing.T) { traceIn(t, mode).endpoints(many) })
	}
}

// endpoints traces connections of several pods to both addresses at a time.
func (l *tracing) endpoints(many int) {
	l.Helper()
	clients := l.clients()
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for range many / len(clients) {
				l.endpoint(clients[i])
			}
		})
	}
	group.Wait()
	l.Logf("%d connections of %d clients", many/len(clients)*len(clients), len(clients))
}

// tracedClient is a pod that connects to an address of the Service.
type tracedClient struct {
	pod string
	ns  *netns.NS
	to  netip.Addr
}

// clients are the pods of node1, with each address of the Service.
func (l *tracing) clients() (list []tracedClient) {
	l.Helper()
	pods, err := l.client.CoreV1().Pods("default").List(l.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=node1"})
	if err != nil || len(pods.Items) < 1 {
		l.Fatalf("pods of node1: %v, error %v", pods, err)
	}
	for _, p := range pods.Items {
		ns := probe.NamespaceNear(netip.MustParseAddr(p.Status.PodIP), l.node1)
		if ns == nil {
			l.Fatalf("the network namespace of %s isn't found", p.Name)
		}
		l.Cleanup(func() { _ = ns.Close() })
		for _, to := range l.services {
			list = append(list, tracedClient{p.Name, ns, to})
		}
	}
	return list
}

// endpoint waits for a connection by trace, makes it, and compares who answered.
func (l *tracing) endpoint(c tracedClient) {
	command := exec.Command(os.Args[0], "trace", "--kubeconfig", l.kubeconfig, "-o", "json", target(c.to), "--from", "pod/"+c.pod)
	var out strings.Builder
	command.Stdout = &out
	said, err := command.StderrPipe()
	if err != nil {
		l.Error(err)
		return
	}
	if err := command.Start(); err != nil {
		l.Error(err)
		return
	}
	line, _ := bufio.NewReader(said).ReadString('\n')
	if !strings.Contains(line, "waiting") {
		l.Errorf("trace of %s: %s", c.pod, line)
	}
	who, asked := whoAnswers(c)
	ended := command.Wait()
	var r traced
	decoded := json.Unmarshal([]byte(out.String()), &r)
	if asked != nil || ended != nil || decoded != nil || r.Endpoint.Pod != "default/"+who || r.Outcome != "answered" {
		l.Errorf("connection of %s to %s: %q answered (%v), trace says %+v (%v, %v)", c.pod, c.to, who, asked, r, ended, decoded)
	}
}

// whoAnswers connects, and is the name of the pod that answers.
func whoAnswers(c tracedClient) (name string, err error) {
	err = c.ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", target(c.to), 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // of a test
		if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if _, err := fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		text, err := io.ReadAll(conn)
		if _, line, ok := strings.Cut(string(text), "hostname: "); ok {
			name, _, _ = strings.Cut(line, "\n")
			name = strings.TrimSpace(name)
		}
		return err
	})
	return name, err
}
