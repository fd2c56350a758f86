//go:build kubernetes

package lab_test

import (
	"strings"
	"testing"

	"github.com/fairway-net/fairway/test/wait"
)

// TestTakeOver: Fairway takes the real kube-proxy's place and gives it back,
// from each mode to each, while connections are made and others last; nothing
// of who went is left.
func TestTakeOver(t *testing.T) {
	c := newCluster(t, kubernetesBinaries(t))
	for _, from := range []string{"iptables", "nftables"} {
		for _, to := range modes {
			t.Run("kube-proxy in "+from+", Fairway in "+to, func(t *testing.T) {
				theirs := c.start(t, kubeProxy(from))
				c.works(t)
				load := c.load(t, true)
				c.stop(t, theirs)
				ours := c.start(t, fairwayProxy(to))
				c.works(t)
				c.onlyLeft(t, to, true)
				load.check(t, "taking over", "")

				load = c.load(t, true)
				c.stop(t, ours)
				theirs = c.start(t, kubeProxy(from))
				c.cleanUp(t, "--after-kube-proxy")
				c.works(t)
				c.onlyLeft(t, from, false)
				load.check(t, "giving back", lostToCleanup(to, from))
				c.stop(t, theirs)
				c.cleanUp(t)
				c.onlyLeft(t, "", true)
			})
		}
	}
}

// TestKubeProxyAlone: what changing modes is without Fairway, for comparison. And
// where all that is left is the real kube-proxy's, cleaning up takes nothing.
func TestKubeProxyAlone(t *testing.T) {
	c := newCluster(t, kubernetesBinaries(t))
	for _, modes := range [][2]string{{"iptables", "nftables"}, {"nftables", "iptables"}} {
		from, to := modes[0], modes[1]
		t.Run("from "+from+" to "+to, func(t *testing.T) {
			first := c.start(t, kubeProxy(from))
			c.works(t)
			load := c.load(t, true)
			c.stop(t, first)
			second := c.start(t, kubeProxy(to))
			c.works(t)
			load.check(t, "changing modes", "it is not Fairway's")

			load = c.load(t, true)
			c.cleanUp(t, "--after-kube-proxy")
			c.works(t)
			c.onlyLeft(t, to, false)
			load.check(t, "cleaning up", "")
			c.stop(t, second)
			c.cleanUp(t)
			c.onlyLeft(t, "", true)
		})
	}
}

// lostToCleanup is why new connections may be lost when kube-proxy starts where rules
// of a mode are in force, or "": it removes them before it has made its own
// (cmd/kube-proxy/app/server_linux.go, platformCleanup), whosever they are.
// TestKubeProxyAlone shows it do so to its own.
func lostToCleanup(mode, kubeProxys string) string {
	if mode == "iptables" && kubeProxys == "nftables" {
		return "kube-proxy removes iptables rules before it makes its own tables"
	}
	return ""
}

// TestOverlap: for a while both run on a node, as when a DaemonSet's pod comes
// before the other's has gone, and both program it.
func TestOverlap(t *testing.T) {
	c := newCluster(t, kubernetesBinaries(t))
	for _, from := range []string{"iptables", "nftables"} {
		for _, to := range []string{"nftables", "iptables"} {
			t.Run("kube-proxy in "+from+", Fairway in "+to, func(t *testing.T) {
				theirs := c.start(t, kubeProxy(from))
				c.works(t)
				ours := c.start(t, fairwayProxy(to)) // it is kube-proxy that says that it is well
				c.replacePods(t)
				c.stop(t, theirs)
				for _, node := range c.nodes {
					eventually(t, "Fairway serves "+node, func() bool { return c.healthy(t, node) })
				}
				c.onlyLeft(t, to, true)
				c.works(t)
				c.stop(t, ours)
				c.cleanUp(t)
				c.onlyLeft(t, "", true)
			})
		}
	}
}

// signs tell by what a command says whose rules there are.
var signs = []struct {
	command, text, mode string
	whose               string // "" if it can't be told
}{
	{"nft list tables", "table ip kube-proxy\n", "nftables", "kube-proxy"},
	{"nft list tables", "table ip6 kube-proxy\n", "nftables", "kube-proxy"},
	{"nft list tables", "table inet fairway\n", "nftables", "Fairway"},
	{"iptables-save", ":KUBE-SVC-", "iptables", ""},
	{"ip6tables-save", ":KUBE-SVC-", "iptables", ""},
}

// onlyLeft waits until the nodes have the rules of one mode, of Fairway or of
// kube-proxy, and of no other; of none at all, if it is "".
func (c *cluster) onlyLeft(t *testing.T, mode string, fairways bool) {
	t.Helper()
	who := map[bool]string{true: "Fairway", false: "kube-proxy"}[fairways]
	for _, node := range c.nodes {
		for _, sign := range signs {
			wanted := sign.mode == mode && (sign.whose == "" || sign.whose == who)
			args := append([]string{"lab", "exec", "--name", c.lab, node, "--"}, strings.Fields(sign.command)...)
			var stdout string
			for late := range wait.Tries(waitTimeout) {
				var stderr string
				var code int
				if stdout, stderr, code = fairway(args...); code != 0 {
					t.Fatalf("%s on %s: %s", sign.command, node, stderr)
				}
				if strings.Contains("\n"+stdout, "\n"+sign.text) == wanted {
					break
				}
				if late {
					t.Errorf("on %s, `%s` has %q: %v, want %v:\n%s", node, sign.command, sign.text, !wanted, wanted, stdout[:min(len(stdout), 2000)])
					break
				}
			}
		}
	}
}
