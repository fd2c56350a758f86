//go:build drain

package lab_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab"
)

// routedHosts are the addresses of the Service of underRouters.
var routedHosts = []string{"10.99.0.1", "fd00:99::1"}

// underRouters has three nodes announce a Service to a router, and clients behind it hold
// connections. Its pods are on node3: packets to those of a lost node are lost whatever
// others do.
func underRouters(t *testing.T, name string) (lab.Config, *persistent) {
	t.Helper()
	c := config(name)
	c.Nodes, c.Mode, c.Router = 3, "nftables", lab.RouterBird
	c.LoadBalancerRanges = []string{"10.99.0.1-10.99.0.9", "fd00:99::1-fd00:99::9"}
	up(t, c)
	t.Cleanup(func() { agentsSaid(t, c.Name, "node1", "node2", "node3") })
	pods := hello(6)
	pods.Spec.Template.Spec.NodeName = "node3"
	balance(t, c.Name, pods, strings.Join(routedHosts, ","), "false")
	eventuallyWays(t, c.Name, 3)
	return c, connectAll(t, c.Name, 40, routedHosts)
}

// eventuallyWays waits until as many nodes announce each of the addresses.
func eventuallyWays(t *testing.T, name string, n int) {
	t.Helper()
	for _, host := range routedHosts {
		eventually(t, fmt.Sprintf("%d nodes announce %s", n, host), func() bool { return nextHops(t, name, host) == n })
	}
}

// fates asks on every connection, and counts those that are answered, reset and left
// hanging: an answer is waited for less long than a node's messages are until they are missed.
func (p *persistent) fates() map[string]int {
	var mu sync.Mutex
	var group sync.WaitGroup
	count := map[string]int{}
	for _, conn := range p.conns {
		group.Go(func() {
			_, _, err := question(conn, 4*time.Second)
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
	return count
}

// TestKeeperLost: connections through a node that has been drained, and that other nodes lead
// there, are reset when it loses power: no client is left hanging until the node's messages
// are missed. Those through other nodes go on.
func TestKeeperLost(t *testing.T) {
	c, p := underRouters(t, "keeper-lost")
	if out, said, code := fairway("drain", "node1", "--wait", "--timeout", "3s", "--kubeconfig", lab.Kubeconfig(c.Name)); code == 0 {
		t.Fatalf("no connection is left: %s%s", out, said)
	}
	eventuallyWays(t, c.Name, 2)
	p.allGoOn(t, "node1 is drained")
	command(t, "lab", "break", "--name", c.Name, "node", "node1", "--power")
	count := p.fates()
	t.Log(count)
	if count["reset"] == 0 || count["answered"] == 0 || count["left hanging"] > 0 {
		t.Errorf("after node1 lost power: %v", count)
	}
}
