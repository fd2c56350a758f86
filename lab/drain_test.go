//go:build drain

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/wait"
)

// TestDrainKeepsConnections: in every mode, connections through the node that announces an
// address go on when it is drained, and drain --wait waits for their end.
func TestDrainKeepsConnections(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "userspace", "ebpf"} {
		t.Run(mode, func(t *testing.T) {
			c := config("drain-" + mode)
			c.Mode = mode
			c.LoadBalancerRanges = []string{"172.30.200.1-172.30.200.9", "fd00:172:30::c801-fd00:172:30::c809"}
			up(t, c)
			t.Cleanup(func() { agentsSaid(t, c.Name, "node1", "node2") })
			hosts := []string{"172.30.200.1", "fd00:172:30::c801"}
			balancedHello(t, c.Name, strings.Join(hosts, ","), "false")
			for _, host := range hosts {
				eventually(t, host+" is reached", func() bool { return reachesHello(c.Name, host) })
			}
			p := connectAll(t, c.Name, 10, hosts)
			drainWithConnections(t, c.Name, hosts[0], p)
		})
	}
}

// TestDrainUnderRouters: in every mode without stable flows, connections that a router spreads
// over three nodes go on when it chooses anew among them: when a node is drained, when it
// comes back, and while an agent is away meanwhile. New ones are refused by none.
func TestDrainUnderRouters(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "userspace", "ebpf"} {
		t.Run(mode, func(t *testing.T) {
			c := config("rings-" + mode)
			c.Nodes, c.Mode, c.Router = 3, mode, lab.RouterBird
			c.LoadBalancerRanges = []string{"10.99.0.1-10.99.0.9", "fd00:99::1-fd00:99::9"}
			up(t, c)
			t.Cleanup(func() { agentsSaid(t, c.Name, "node1", "node2", "node3") })
			hosts := []string{"10.99.0.1", "fd00:99::1"}
			balancedHello(t, c.Name, strings.Join(hosts, ","), "false")
			ways := func(n int) {
				t.Helper()
				for _, host := range hosts {
					eventually(t, fmt.Sprintf("%d nodes announce %s", n, host), func() bool { return nextHops(t, c.Name, host) == n })
				}
			}
			ways(3)
			p := connectAll(t, c.Name, 40, hosts)
			newcomers := keepConnecting(t, c.Name, hosts)
			out, said, code := fairway("drain", "node1", "--wait", "--timeout", "3s", "--kubeconfig", lab.Kubeconfig(c.Name))
			if code == 0 || !strings.Contains(said, "connections") {
				t.Errorf("drain doesn't wait for connections: %s%s", out, said)
			}
			ways(2)
			p.allGoOn(t, "node1 is drained")
			if mode != "userspace" { // where connections end with the agent
				killAgent(t, c.Name, "node1")
				killAgent(t, c.Name, "node2")
				p.allGoOn(t, "agents of node1 and node2 were killed")
				time.Sleep(8 * time.Second) // others would have forgotten them
			}
			p.allGoOn(t, "node1 has been drained for long")
			p.add(t, connectAll(t, c.Name, 20, hosts))
			command(t, "drain", "node1", "--undo", "--kubeconfig", lab.Kubeconfig(c.Name))
			ways(3)
			p.allGoOn(t, "node1 is back")
			newcomers()
			p.end(t)
			command(t, "drain", "node1", "--wait", "--kubeconfig", lab.Kubeconfig(c.Name))
			expectNoRings(t, c.Name, "node1", "node2", "node3")
		})
	}
}

// keepConnecting opens connections one after the other until what it returns is called, which
// fails if one was refused or not answered.
func keepConnecting(t *testing.T, name string, hosts []string) (stop func()) {
	t.Helper()
	ns, err := netns.Open(topology.HostNamespace(name, "client"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	from, done, made, failed := &place{ns: ns}, make(chan struct{}), 0, []error{}
	go func() {
		defer close(done)
		for range wait.Every(ctx, 20*time.Millisecond) {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTimeout)
			conn, err := from.dial(within, "tcp", net.JoinHostPort(hosts[made%len(hosts)], "80"))
			cancel()
			if err == nil {
				_, _, err = question(conn, waitTimeout)
				err = errors.Join(err, conn.Close())
			}
			if made++; err != nil {
				failed = append(failed, err)
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		<-done
		if err := errors.Join(append(failed, ns.Close())...); err != nil || made == 0 {
			t.Errorf("of %d new connections some failed: %v", made, err)
		}
	}
}

// expectNoRings waits until nothing leads packets to other nodes any more.
func expectNoRings(t *testing.T, name string, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		ns, err := netns.Open(topology.HostNamespace(name, node))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, node+" leads nothing elsewhere", func() bool {
			var left []string
			err := ns.Do(func() (err error) {
				left, err = steering.Leftovers()
				return err
			})
			return err == nil && len(left) == 0
		})
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	}
}

func drainWithConnections(t *testing.T, name, host string, p *persistent) {
	t.Helper()
	owner := announcer(t, name, host)
	out, said, code := fairway("drain", owner, "--wait", "--timeout", "5s", "--kubeconfig", lab.Kubeconfig(name))
	if code == 0 || !strings.Contains(said, "connections") {
		t.Errorf("drain doesn't wait for connections: %s%s", out, said)
	}
	eventually(t, "another node announces", func() bool {
		now := announcer(t, name, host)
		return now != "" && now != owner
	})
	p.allGoOn(t, owner+" is drained")
	if !reachesHello(name, host) {
		t.Errorf("no new connection to %s", host)
	}
	p.end(t)
	command(t, "drain", owner, "--wait", "--kubeconfig", lab.Kubeconfig(name))
}

// agentsSaid shows what agents logged of announcing, if a test has failed.
func agentsSaid(t *testing.T, name string, nodes ...string) {
	if !t.Failed() {
		return
	}
	for _, node := range nodes {
		text, err := os.ReadFile(filepath.Join(lab.Dir(name), "agent-"+node+".log"))
		if err != nil {
			t.Log(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "part=announce") {
				t.Log(node, strings.TrimSpace(line))
			}
		}
	}
}
