package lab_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab"
)

// TestKeeperLost: connections through a node that has been drained, and that other nodes lead
// there, are reset when it loses power: no client is left hanging until the node's messages
// are missed. Those through other nodes go on.
func TestKeeperLost(t *testing.T) {
	if os.Getenv("FAIRWAY_DRAIN") == "" {
		t.Skip("takes long: `make drain`")
	}
	c := config("keeper-lost")
	c.Nodes, c.Mode, c.Router = 3, "nftables", lab.RouterBird
	c.LoadBalancerRanges = []string{"10.99.0.1-10.99.0.9", "fd00:99::1-fd00:99::9"}
	up(t, c)
	t.Cleanup(func() { agentsSaid(t, c.Name, "node1", "node2", "node3") })
	hosts := []string{"10.99.0.1", "fd00:99::1"}
	pods := hello(6)
	pods.Spec.Template.Spec.NodeName = "node3" // packets to pods of node1 are lost whatever others do
	balance(t, c.Name, pods, strings.Join(hosts, ","), "false")
	ways := func(n int) {
		for _, host := range hosts {
			eventually(t, fmt.Sprintf("%d nodes announce %s", n, host), func() bool { return nextHops(t, c.Name, host) == n })
		}
	}
	ways(3)
	p := connectAll(t, c.Name, 40, hosts)
	if out, said, code := fairway("drain", "node1", "--wait", "--timeout", "3s", "--kubeconfig", lab.Kubeconfig(c.Name)); code == 0 {
		t.Fatalf("no connection is left: %s%s", out, said)
	}
	ways(2)
	p.allGoOn(t, "node1 is drained")
	command(t, "lab", "break", "--name", c.Name, "node", "node1", "--power")
	var mu sync.Mutex
	var group sync.WaitGroup
	count := map[string]int{}
	for _, conn := range p.conns {
		group.Go(func() {
			_, _, err := question(conn, 4*time.Second) // messages are missed after five
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				count["answered"]++
			case errors.Is(err, unix.ECONNRESET):
				count["reset"]++
			default:
				count["left hanging"]++
			}
		})
	}
	group.Wait()
	t.Log(count)
	if count["reset"] == 0 || count["answered"] == 0 || count["left hanging"] > 0 {
		t.Errorf("after node1 lost power: %v", count)
	}
}
