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
