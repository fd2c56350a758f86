//go:build !agentonly

package cmd

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestServersByIPv6: servers that know each other by IPv6 addresses only are one
// cluster, a machine joins it and reaches the API by its Service. They end in good
// order when what ends them signals them twice at once.
func TestServersByIPv6(t *testing.T) {
	n := newNetwork(t)
	m1, m2, m3 := n.hosts["m1"], n.hosts["m2"], n.hosts["m3"]
	begin := func(m *plainMachine, line, sign string) (out *output, pid int) {
		t.Helper()
		out, _ = m.startWith("exec ./"+line, &pid)
		eventually(t, m.name+" says "+sign, func() bool { return strings.Contains(out.String(), sign) })
		return out, pid
	}
	for _, m := range n.hosts {
		m.run("cp fairway bin/fairway")
	}
	first, pid := begin(m1, "fairway server --service-cidr fd00:10:96::/112 --bind-address fd00:77::11 --cluster-init", "to join other machines")
	token := strings.TrimSpace(m1.run("fairway token create --server --ttl 1h 2>/dev/null"))
	begin(m2, "fairway server --bind-address :: --advertise-address fd00:77::12 --join https://[fd00:77::11]:6443 --token "+token, "to join other machines")
	eventually(t, "both are servers", func() bool {
		list := m2.run("fairway server members")
		return strings.Contains(list, "https://[fd00:77::12]:2380") && strings.Count(list, "leader")+strings.Count(list, "follower") == 2
	})
	token = strings.TrimSpace(m2.run("fairway token create --ttl 1h 2>/dev/null"))
	agent, _ := begin(m3, "fairway join https://[fd00:77::12]:6443 --token "+token, "Services are in force")
	if out := m3.run("curl -gsk https://[fd00:10:96::1]/version"); !strings.Contains(out, "gitVersion") {
		t.Errorf("the API's Service answers %s", out)
	}
	if line := regexp.MustCompile(`(?m)^[IWEF]\d{4} .*$`).FindString(agent.String()); line != "" {
		t.Errorf("the agent of a joined machine logs in another format: %s", line)
	}

	if holder := m2.run("fairway kubectl get lease -n kube-system fairway-controllers -o jsonpath={.spec.holderIdentity}"); !strings.HasPrefix(holder, "m1_") {
		t.Fatalf("the controllers' lease is held by %q, want m1", holder)
	}
	n.must(syscall.Kill(pid, syscall.SIGTERM))
	n.must(syscall.Kill(pid, syscall.SIGTERM))
	eventually(t, "the server ends", func() bool { return isGone(pid) })
	// It gave the controllers' lease back while its API still answered.
	if said := first.String(); !strings.Contains(said, "Stopping") || strings.Contains(said, "ended at once") || strings.Contains(said, "resource lock") {
		t.Errorf("signalled twice at once, the server that ran the controllers says\n%s", said)
	}
}
