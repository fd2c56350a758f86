package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/lab"
)

// TestDrainKeepsConnections: in every mode, connections through the node that announces an
// address go on when it is drained, and drain --wait waits for their end.
func TestDrainKeepsConnections(t *testing.T) {
	if os.Getenv("FAIRWAY_DRAIN") == "" {
		t.Skip("takes a minute: `make drain`")
	}
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
	for _, conn := range p.conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
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
