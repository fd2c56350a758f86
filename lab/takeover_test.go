package lab_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// isRefused tells whether a connection was refused at once.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// TestTakeOver: Fairway takes the real kube-proxy's place and gives it back,
// from each mode to each, while connections are made and others last; nothing
// of who went is left.
func TestTakeOver(t *testing.T) {
	c := newCluster(t, kubernetesBinaries(t))
	for _, from := range []string{"iptables", "nftables"} {
		for _, to := range modes {
			t.Run("kube-proxy in "+from+", Fairway in "+to, func(t *testing.T) {
				p := c.start(t, kubeProxy(from))
				c.works(t)
				t.Run("take over", func(t *testing.T) {
					load := c.load(t, true)
					c.stop(t, p)
					p = c.start(t, fairwayProxy(to))
					c.works(t)
					load.check(t)
				})
				c.onlyLeft(t, to, true)
				t.Run("give back", func(t *testing.T) {
					load := c.load(t, true)
					c.stop(t, p)
					p = c.start(t, kubeProxy(from))
					c.works(t)
					c.cleanUp(t, "--keep-kube-proxy")
					c.works(t)
					load.check(t)
				})
				c.onlyLeft(t, from, false)
				c.stop(t, p)
				c.cleanUp(t)
			})
		}
	}
}

// onlyLeft checks that the nodes have the rules of one mode, of Fairway or of
// kube-proxy, and of no other.
func (c *cluster) onlyLeft(t *testing.T, mode string, fairways bool) {
	t.Helper()
	for _, node := range c.nodes {
		for _, sign := range []struct {
			command, text string
			wanted        bool
		}{
			{"nft list tables", "table ip kube-proxy", mode == "nftables" && !fairways},
			{"nft list tables", "table ip6 kube-proxy", mode == "nftables" && !fairways},
			{"nft list tables", "table inet fairway", mode == "nftables" && fairways},
			{"iptables-save", ":KUBE-SVC-", mode == "iptables"},
			{"ip6tables-save", ":KUBE-SVC-", mode == "iptables"},
		} {
			args := append([]string{"lab", "exec", "--name", c.lab, node, "--"}, strings.Fields(sign.command)...)
			stdout, stderr, code := fairway(args...)
			if code != 0 {
				t.Errorf("%s on %s: %s", sign.command, node, stderr)
			}
			if strings.Contains(stdout, sign.text) != sign.wanted {
				t.Errorf("on %s, `%s` has %q: %v, want %v:\n%s", node, sign.command, sign.text, !sign.wanted, sign.wanted, stdout[:min(len(stdout), 2000)])
			}
		}
	}
}
