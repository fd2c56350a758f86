//go:build !agentonly && servers

package cmd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fairway-net/fairway/cmd/cluster"
)

// operating runs the commands of docs/how-to/operating.md.
type operating struct {
	*network
	documented map[string]bool // each command line, and whether it was run
}

// TestOperating runs the commands of docs/how-to/operating.md on four machines, as the
// document says: one server, machines that join and leave, certificates
// renewed, three servers, backup and restore.
func TestOperating(t *testing.T) {
	if _, err := os.Stat(filepath.Dir(cluster.AgentUnitFile)); err != nil {
		t.Fatal("a folder for systemd's units is needed, systemd is not:", err)
	}
	o := &operating{newNetwork(t), map[string]bool{}}
	for _, line := range documentedLines(t, "../docs/how-to/operating.md") {
		o.documented[line] = false
	}
	for _, m := range o.hosts {
		m.run("install fairway /usr/local/bin")
	}
	o.alone()
	o.three()
	o.run("laptop", "sudo fairway up", "192.0.2.10", "10.77.0.50")
	// It takes an etcd with certificates: TestTwoServersOneEtcd has one.
	o.documented[o.line("fairway server --etcd-servers")] = true
	for line, run := range o.documented {
		if !run {
			t.Errorf("nothing runs %q", line)
		}
	}
}

// documentedLines are the commands of a document, without comments.
func documentedLines(t *testing.T, file string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(text), "```") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.TrimSpace(line); i%2 == 1 && strings.HasPrefix(strings.TrimPrefix(line, "sudo "), "fairway ") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// line is the shortest documented command that begins so.
func (o *operating) line(prefix string) string {
	o.t.Helper()
	found := ""
	for line := range o.documented {
		if strings.HasPrefix(line, prefix) && (found == "" || len(line) < len(found)) {
			found = line
		}
	}
	if found == "" {
		o.t.Fatalf("the document has no %q", prefix)
	}
	return found
}

// take marks a documented command as run and fills in what is of this test.
func (o *operating) take(prefix string, replace ...string) string {
	o.t.Helper()
	line := o.line(prefix)
	o.documented[line] = true
	return strings.NewReplacer(append(replace, "192.0.2.10", "10.77.0.11", "192.0.2.11", "10.77.0.12", "192.0.2.12", "10.77.0.13", "/root/", "./", "/var/log/", "./")...).Replace(line)
}

// run runs a documented command on a machine. Those that serve go on, until what
// it returns is called.
func (o *operating) run(machine, prefix string, replace ...string) (out string, stop func()) {
	o.t.Helper()
	return o.runLine(machine, o.take(prefix, replace...))
}

func (o *operating) runLine(machine, line string) (string, func()) {
	o.t.Helper()
	m := o.hosts[machine]
	serves := regexp.MustCompile(`^(sudo )?fairway (server --|up )`).MatchString(line)
	if !serves {
		return m.run(line), func() {}
	}
	pid := 0
	out, _ := m.startWith("exec "+line, &pid) // a shell would not pass signals on
	eventually(o.t, machine+": "+line+" is ready", func() bool {
		if o.ended(pid) {
			o.t.Fatalf("%s: %s ended", machine, line)
		}
		return strings.Contains(out.String(), "API server ready at")
	})
	return out.String(), func() {
		o.t.Helper()
		o.end(pid)
		eventually(o.t, machine+": it said that it ends", func() bool { return strings.Contains(out.String(), "Stopping: ") })
	}
}

// end ends a process and waits until it has gone.
func (o *operating) end(pid int) {
	o.t.Helper()
	o.must(syscall.Kill(pid, syscall.SIGTERM))
	eventually(o.t, "the process ends", func() bool { return o.ended(pid) })
}

func (o *operating) ended(pid int) bool {
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(state, []byte(") Z "))
}

// token is what a command prints for others to join by.
func (o *operating) token(out string) string {
	o.t.Helper()
	found := regexp.MustCompile(`echo (\S+) \| sudo fairway (join|server) `).FindStringSubmatch(out)
	if found == nil {
		o.t.Fatalf("no way to join in:\n%s", out)
	}
	return found[1]
}

// joins runs a documented command that joins with a token, which is in a file.
func (o *operating) joins(machine, prefix, token string) (stop func()) {
	o.t.Helper()
	o.hosts[machine].file("token", token+"\n", 0o600)
	_, stop = o.runLine(machine, o.take(prefix))
	return stop
}

const audit = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"

// alone is what the document says of one server and of machines that join it.
func (o *operating) alone() {
	o.t.Helper()
	m1 := o.hosts["m1"]
	m1.file("policy.yaml", audit, 0o644)
	server := o.take("sudo fairway server --bind-address 0.0.0.0 --advertise-address 192.0.2.10")
	_, flags, _ := strings.Cut(o.take("fairway server --audit-policy-file"), "server ")
	_, stop := o.runLine("m1", server+" "+flags)
	out, _ := o.run("m1", "sudo fairway token create --ttl")
	o.joinsAndLeaves(o.token(out))

	before, err := os.ReadFile(filepath.Join(m1.dir, "lib/pki/serving.pem"))
	o.must(err)
	m1.run("fairway certs rotate")
	after, err := os.ReadFile(filepath.Join(m1.dir, "lib/pki/serving.pem"))
	o.must(err)
	shown := m1.run("fairway certs show")
	if bytes.Equal(before, after) || !strings.Contains(shown, "serving.pem") || !strings.Contains(shown, "client-ca.crt") || !strings.Contains(shown, "admin.kubeconfig") {
		o.t.Errorf("certs rotate renewed nothing, or show says little:\n%s", shown)
	}
	m1.run("fairway kubectl create secret generic before --from-literal=a=b")
	o.run("m1", "fairway server snapshot save")
	if out, _ := o.run("m1", "fairway server snapshot status"); !strings.Contains(out, "revision") {
		o.t.Errorf("snapshot status says %s", out)
	}
	if log, err := os.ReadFile(filepath.Join(m1.dir, "fairway-audit.log")); err != nil || !bytes.Contains(log, []byte(`"before"`)) {
		o.t.Errorf("the Secret isn't in the audit log: %v", err)
	}
	o.run("m1", "fairway server secrets rewrite --new-key")
	stop()
	o.rewrites(server)
}

// joinsAndLeaves has the laptop be a machine of the cluster, by a unit, for a while.
func (o *operating) joinsAndLeaves(token string) {
	o.t.Helper()
	m1, laptop := o.hosts["m1"], o.hosts["laptop"]
	laptop.file("bin/systemctl", `#!/bin/sh
echo "$@" >>/run/systemctl.log
[ "$1 $2 $3" = "disable --now fairway-agent.service" ] || exit 0
pid=$(cat /run/agent.pid)
kill "$pid"
while [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status"; do sleep 0.1; done
`, 0o755)
	o.joins("laptop", "sudo fairway join", token)
	unit, err := os.ReadFile(filepath.Join(laptop.dir, "units", cluster.AgentUnit))
	o.must(err)
	_, command, _ := strings.Cut(string(unit), "ExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	pid := 0
	laptop.startWith(asFairway+"=1 exec "+command, &pid)
	laptop.file("run/agent.pid", fmt.Sprint(pid), 0o644)
	eventually(o.t, "the laptop is a node", func() bool { return strings.Contains(m1.run("fairway kubectl get nodes"), "laptop   Ready") })
	if shown := laptop.run("fairway certs show"); !strings.Contains(shown, "system:node:laptop") {
		o.t.Errorf("certs show on a machine says:\n%s", shown)
	}
	if shown := laptop.run("fairway status"); !strings.Contains(shown, "laptop  Ready") || !strings.Contains(shown, "WARNINGS are not shown: events is forbidden") {
		o.t.Errorf("status on a machine says:\n%s", shown)
	}
	if tables := laptop.run("nft list tables"); !strings.Contains(tables, "fairway") {
		o.t.Errorf("the agent of the unit programs nothing:\n%s", tables)
	}
	if out, _ := o.run("laptop", "sudo fairway leave"); !strings.Contains(out, "node laptop: deleted") {
		o.t.Errorf("leave says %s", out)
	}
	calls, err := os.ReadFile(filepath.Join(laptop.dir, "run/systemctl.log"))
	o.must(err)
	if want := "daemon-reload\nenable --now fairway-agent.service\ndisable --now fairway-agent.service\ndaemon-reload\n"; string(calls) != want {
		o.t.Errorf("systemctl was called with\n%swant\n%s", calls, want)
	}
	if _, err := os.Stat(filepath.Join(laptop.dir, "units", cluster.AgentUnit)); err == nil {
		o.t.Error("the unit stays")
	}
	left := m1.run("fairway kubectl get nodes,leases --all-namespaces 2>&1") + laptop.run("nft list tables; ls /var/lib/fairway/node")
	if strings.Contains(left, "laptop") || strings.Contains(left, ".json") || strings.Contains(left, "fairway-node") || strings.Contains(left, "table inet fairway") {
		o.t.Errorf("the laptop has left, and there is still\n%s", left)
	}
}

// rewrites has the Secrets written with the new key. It begins and ends with the server
// stopped.
func (o *operating) rewrites(server string) {
	o.t.Helper()
	_, stop := o.runLine("m1", server)
	if objects, _ := o.run("m1", "fairway kubectl get flowschemas"); !strings.Contains(objects, "/system-nodes ") {
		o.t.Errorf("the objects of priority and fairness: %s", objects)
	}
	out, _ := o.run("m1", "fairway server secrets rewrite")
	if !regexp.MustCompile(`[1-9]\d* Secrets written anew`).MatchString(out) {
		o.t.Errorf("secrets rewrite says %s", out)
	}
	stop()
}

// three is what the document says of three servers, and of restoring one.
func (o *operating) three() {
	o.t.Helper()
	m1 := o.hosts["m1"]
	o.hosts["m2"].run("rm -rf /var/lib/fairway/*")
	first := o.take("sudo fairway server --bind-address 0.0.0.0 --advertise-address 192.0.2.10 --cluster-init")
	_, stop := o.runLine("m1", first)
	out, _ := o.run("m1", "sudo fairway token create --server")
	stop2 := o.joins("m2", "sudo fairway server --bind-address 0.0.0.0 --advertise-address 192.0.2.11", o.token(out))
	o.hosts["m3"].file("token", m1.run("fairway token create --server 2>/dev/null"), 0o600)
	third := o.take("sudo fairway server --bind-address 0.0.0.0 --advertise-address 192.0.2.12")
	pid := 0
	removed, _ := o.hosts["m3"].startWith("exec "+third, &pid)
	members := func() string {
		out, _ := o.run("m1", "sudo fairway server members")
		return out
	}
	eventually(o.t, "all three are servers", func() bool {
		list := members()
		return strings.Count(list, "follower") == 2 && strings.Count(list, "leader") == 1
	})
	remove := o.take("sudo fairway server members remove", "HOST", "m3")
	// A server that has just joined isn't known to be healthy for a few seconds.
	eventually(o.t, "m3 is removed", func() bool { return strings.Contains(m1.run(remove+" 2>&1 || true"), "server m3 removed") })
	eventually(o.t, "m3 ends and says why", func() bool { return strings.Contains(removed.String(), "was removed from the cluster") })
	if list := members(); strings.Contains(list, "m3") {
		o.t.Errorf("m3 was removed, and is listed:\n%s", list)
	}
	stop2()
	stop()
	m1.run("mv /var/lib/fairway/etcd /var/lib/fairway/etcd.lost")
	o.run("m1", "fairway server snapshot restore")
	_, stop = o.runLine("m1", first)
	if names := strings.Fields(m1.run("fairway kubectl get secrets -o name")); !slices.Contains(names, "secret/before") {
		o.t.Errorf("the Secret of the snapshot isn't restored: %v", names)
	}
	stop()
}
