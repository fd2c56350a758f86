//go:build drain

package lab_test

import (
	"testing"

	"github.com/fairway-net/fairway/lab"
)

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
