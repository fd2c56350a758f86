package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/lab"
)

// TestNamesWhileModesChange changes the data plane of running agents, by their
// configuration, while a pod asks all the time: no question is even asked again.
func TestNamesWhileModesChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube-proxy.yaml")
	c := config("dns-switch")
	write := func(mode string) {
		text := fmt.Sprintf("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: %s\n"+
			"clusterCIDR: 10.244.0.0/16,fd00:10:244::/56\nclientConnection: {kubeconfig: %s}\n", mode, filepath.Join(lab.Dir(c.Name), "node.kubeconfig"))
		// In one step, so that no half of it is ever read.
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("nftables")
	c.Mode, c.AgentArgs = "nftables", []string{"--config", path}
	pod := upWithWeb(t, c)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log(t, c, "node1"))
		}
	})
	a := newAsker(t, c, pod)
	for _, node := range []string{"node1", "node2"} {
		eventually(t, node+" answers itself", func() bool { return holds(c, node) })
	}
	q := a.askAlways(t, 4)
	asked := 0
	for _, mode := range []string{"ebpf", "iptables", "userspace", "nftables"} {
		asked += 200
		q.reach(t, asked)
		before := strings.Count(log(t, c, "node1"), "mode changed")
		write(mode)
		eventually(t, "the mode becomes "+mode, func() bool { return strings.Count(log(t, c, "node1"), "mode changed") > before })
		eventually(t, "the node answers itself", func() bool { return holds(c, "node1") })
		checkUntracked(t, c, a)
	}
	q.reach(t, asked+200)
	q.check(t, c)
	if q.again > 0 {
		t.Errorf("%d questions had to be asked again", q.again)
	}
}
