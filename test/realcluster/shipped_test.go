//go:build realcluster

package realcluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestShipped runs the agents with what deploy/ gives them and nothing else, ebpf mode's in
// drivers too, and asks every command from the administrator's machine and in an agent's pod.
func TestShipped(t *testing.T) {
	w := startWalk(t, Options{})
	defer hold(t, w.c)
	c := w.c
	w.must(c.Edit("kubeadm", "components: [../ebpf]"))
	w.mode = "iptables" // as kubeadm's ConfigMap says
	w.atOnce()
	for mode := range strings.FieldsSeq(cmp.Or(os.Getenv("FAIRWAY_REALCLUSTER_MODES"), "nftables ebpf")) {
		from := w.mode
		w.mode = mode
		w.step("from "+from+" to "+mode+" mode", loseNothing, func() error { return c.SetMode(mode) })
		w.commands()
	}
	if w.mode == "ebpf" {
		for _, xdp := range []string{"auto", "native"} {
			w.xdp(xdp)
		}
		w.commands()
	}
	w.quiet()
	w.back()
}

func (w *walk) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// xdp has agents forward in drivers, and restarts them in each way.
func (w *walk) xdp(how string) {
	c := w.c
	w.step("ebpf: --xdp "+how, loseNothing, func() error { return c.setFlag("--xdp", how) })
	w.step("ebpf, --xdp "+how+": restart of the agents", loseNothing, func() error { return c.Restart("kube-system", "daemonset/fairway") })
	w.step("ebpf, --xdp "+how+": killed agents", loseNothing, w.kill)
	w.step("ebpf, --xdp "+how+": rollout of the workload", loseKept, func() error { return c.Restart(namespace, "deployment/rolling") })
}

// setFlag adds a flag of the agents to deploy/base, applies it, and waits until all have it.
func (c *Cluster) setFlag(name, value string) error {
	file := filepath.Join(c.deploy, "base/daemonset.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const last = "        - --hostname-override=$(NODE_NAME)\n"
	before, agent, found := strings.Cut(string(text), "      containers:\n")
	if !found || strings.Count(agent, last) != 1 {
		return fmt.Errorf("%s has no container with the flag --hostname-override", file)
	}
	lines := slices.DeleteFunc(strings.SplitAfter(agent, "\n"), func(l string) bool { return strings.HasPrefix(l, "        - "+name+"=") })
	agent = strings.Replace(strings.Join(lines, ""), last, last+"        - "+name+"="+value+"\n", 1)
	if err := os.WriteFile(file, []byte(before+"      containers:\n"+agent), 0o644); err != nil {
		return err
	}
	return errors.Join(c.Apply("kubeadm"), c.RolledOut("kube-system", "daemonset/fairway"))
}

// command is what somebody asks Fairway, and what the answer has and hasn't.
type command struct {
	args     string
	has, not []string
	codes    []int // exit codes, 0 alone if there are none
}

// commands asks every command, from the administrator's machine and in an agent's pod.
func (w *walk) commands() {
	w.t.Helper()
	c := w.c
	pod, err := c.Kubectl("", "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=fairway,app.kubernetes.io/component=proxy",
		"--field-selector", "spec.nodeName="+c.Nodes[0].Name, "-o", "jsonpath={.items[0].metadata.name}")
	w.must(err)
	inPod := []string{filepath.Join(c.options.Programs, "kubectl"), "-n", "kube-system", "exec", pod, "-c", "fairway", "--", "/usr/local/bin/fairway"}
	for _, run := range []struct {
		where    string
		program  []string
		commands []command
	}{{"administrator", []string{c.options.Fairway}, w.asked()}, {"agent's pod", inPod, w.askedInPod()}} {
		for _, asked := range run.commands {
			w.ask(run.where, run.program, asked)
		}
	}
	if w.mode != "ebpf" { // where only --send can be followed
		w.traced()
	}
}

// traced has an administrator wait for a pod's connection and follow it.
func (w *walk) traced() {
	w.t.Helper()
	client := w.c.Clients[0]
	web, err := w.c.serviceAddresses("web")
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.ask("administrator", []string{w.c.options.Fairway}, command{args: "trace svc/web -n " + namespace + " --from pod/" + client.Name + " --wait 60s", has: []string{"answered"}})
	}()
	for {
		select {
		case <-done:
			return
		default:
		}
		if _, err := client.Ask(TCP, netip.AddrPortFrom(web[0], 80).String()); err != nil {
			w.t.Error(err)
		}
	}
}

// asked are the commands of an administrator, with all rights and a machine that is no node.
func (w *walk) asked() []command {
	bundle := filepath.Join(w.c.dir, "bundle-"+w.mode+".tgz")
	web, node1 := "svc/web -n "+namespace, w.c.Nodes[0].Name
	return []command{
		{args: "status", has: []string{node1, w.mode}, not: []string{"unknown"}},
		{args: "explain " + web, has: []string{"from outside: FORWARDED to one of 2 endpoints, at random, client address replaced"}},
		{args: "dump " + web + " --node " + node1, has: []string{"as they should be"}},
		{args: "flows -n " + namespace, has: []string{namespace + "/nodeport"}},
		{args: "trace " + web + " --from pod/client-" + node1 + " --send", has: []string{"Leave out --send"}, codes: []int{2}},
		{args: "trace " + web + " --from node/" + node1 + " --send", has: []string{"answered"}, not: []string{"127.0.0.1:2381"}},
		{args: "doctor -A", has: []string{"FW101"}, not: []string{"FW123"}, codes: []int{1}},
		{args: "doctor " + web, codes: []int{0}},
		{args: "doctor --node " + w.c.Nodes[1].Name, not: []string{"this machine", "FW123"}},
		{args: "doctor -n " + namespace, not: []string{"this machine", "FW123"}, codes: []int{1}},
		{args: "doctor -A --from pod/client-" + node1 + " -n " + namespace, not: []string{"FW123"}, codes: []int{1}},
		{args: "bundle -o " + bundle},
		{args: "doctor -f " + bundle, has: []string{"FW101"}, codes: []int{1}},
		{args: "explain -f " + bundle + " " + web, has: []string{"from outside: FORWARDED to one of 2 endpoints, at random, client address replaced"}},
	}
}

// askedInPod are the commands in an agent's pod, which may what kube-proxy may.
func (w *walk) askedInPod() []command {
	web, node1 := "svc/web -n "+namespace, w.c.Nodes[0].Name
	return []command{
		{args: "status", has: []string{node1, w.mode}},
		{args: "explain " + web, has: []string{node1}},
		{args: "dump " + web},
		{args: "flows"},
		{args: "trace " + web + " --send", has: []string{"answered"}},
		{args: "trace " + web + " --from pod/client-" + node1 + " --send", codes: []int{0, 2}},
		{args: "doctor -A", not: []string{"pods are selected"}, codes: []int{0, 1}},
		{args: "doctor " + web, codes: []int{0, 1}},
		{args: "bundle -o /run/fairway/bundle.tgz"},
	}
}

// ask asks a command, which neither panics nor says what it must not.
func (w *walk) ask(where string, program []string, asked command) {
	w.t.Helper()
	out, err := w.c.Admin("", append(slices.Clone(program), strings.Fields(asked.args)...)...)
	w.t.Logf("%s mode, %s: fairway %s: %v\n%s", w.mode, where, asked.args, err, out)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		w.t.Errorf("%s mode, %s: fairway %s: %v", w.mode, where, asked.args, err)
		return
	}
	if codes := asked.codes; !slices.Contains(codes, code) && (code != 0 || len(codes) > 0) {
		w.t.Errorf("%s mode, %s: fairway %s: exit code %d", w.mode, where, asked.args, code)
	}
	for _, text := range asked.has {
		if !strings.Contains(strings.ToLower(out), strings.ToLower(text)) {
			w.t.Errorf("%s mode, %s: fairway %s doesn't say %q", w.mode, where, asked.args, text)
		}
	}
	for _, text := range append(asked.not, "panic:", "goroutine ") {
		if strings.Contains(out, text) {
			w.t.Errorf("%s mode, %s: fairway %s says %q", w.mode, where, asked.args, text)
		}
	}
}

// quiet looks for warnings in the agents' logs.
func (w *walk) quiet() {
	w.t.Helper()
	for _, args := range [][]string{{}, {"--previous"}} {
		out, err := w.c.Kubectl("", append([]string{"-n", "kube-system", "logs", "-l", "app.kubernetes.io/component=proxy", "-c", "fairway", "--tail=-1", "--prefix"}, args...)...)
		if err != nil {
			w.t.Logf("logs %v: %v", args, err)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "OOM score") { // this cluster's containerd restricts it
				continue
			}
			if strings.Contains(line, "not permitted") || strings.Contains(line, "permission denied") {
				w.t.Errorf("an agent says %s", line)
			} else if strings.Contains(line, "WARN") || strings.Contains(line, "ERROR") {
				w.t.Logf("an agent says %s", line)
			}
		}
	}
}
