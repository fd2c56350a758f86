//go:build !agentonly

package cmd

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
)

// fails runs a command line in a process of its own, without a kubeconfig, and
// returns what it says; exit status 1 is expected.
func fails(t *testing.T, user uint32, words ...string) string {
	t.Helper()
	c := exec.Command("/proc/self/exe", words...)
	c.Env = append(os.Environ(), asFairway+"=1", "KUBECONFIG=", "HOME=/nonexistent", "KUBERNETES_SERVICE_HOST=")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := c.CombinedOutput()
	if c.ProcessState == nil || c.ProcessState.ExitCode() != 1 {
		t.Errorf("fairway %v: %v\n%s", words, err, out)
	}
	return string(out)
}

// TestErrors: errors say what happened, name the flag, and say what to do.
func TestErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // of a test
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	const nobody = 65534
	for _, c := range []struct {
		user uint32
		line string
		want []string
	}{
		{nobody, "up", []string{"takes root", "try sudo fairway up\n"}},
		{nobody, "cleanup", []string{"try sudo fairway cleanup\n"}},
		{nobody, "join https://192.0.2.10:6443 --token x", []string{"try sudo fairway join\n"}},
		{nobody, "leave", []string{"try sudo fairway leave\n"}},
		{nobody, "server --data-dir " + rootsOwn(t), []string{"permission denied: try sudo\n"}},
		{0, "server --secure-port " + port + " --data-dir " + t.TempDir(), []string{
			"address already in use", "(process " + strconv.Itoa(os.Getpid()) + ") has it", "another --secure-port\n",
		}},
		{0, "agent", []string{"fairway: --kubeconfig: not given", "/etc/kubernetes/kubelet.conf"}},
		{0, "agent --kubeconfig /nonexistent/file", []string{"--kubeconfig", "/nonexistent/file: no such file"}},
		{0, "agent --mode ipsv", []string{`--mode: "ipsv" must be one of auto, nftables`}},
		{0, "kubectl get pods", []string{"no API to ask: there is no kubeconfig. Give --kubeconfig"}},
		{0, "agent --ipvs-sync-period 5", []string{`--ipvs-sync-period: "5" is not a time such as 30s`}},
		{0, "agent --oom-score-adj x", []string{`--oom-score-adj: "x" is not a number`}},
		{0, "up --secure-port 99999999999999999999", []string{"--secure-port", "not a port"}},
		{0, "up --service-node-port-range x", []string{"--service-node-port-range", "such as 30000-32767"}},
		{0, "up --service-cidr 10.96.0.0/8", []string{"--service-cidr: ", "10.0.0.0/8"}},
		{0, "up --moode x", []string{"unknown flag: --moode: see fairway up --help"}},
		{0, "up x", []string{`the argument "x"`, "use it as fairway up"}},
		{0, "drain", []string{"an argument is missing: use it as fairway drain NODE"}},
		{0, "lab foo", []string{`fairway lab has no command "foo": see fairway lab --help`}},
		{0, "lab don", []string{"did you mean down?"}},
		{0, "foo", []string{`unknown command "foo" for "fairway": did you mean hook?`}},
	} {
		said := fails(t, c.user, strings.Fields(c.line)...)
		if strings.Count(said, "\n") != 1 || strings.Contains(said, "strconv") {
			t.Errorf("fairway %s: not one plain line: %s", c.line, said)
		}
		for _, part := range c.want {
			if !strings.Contains(said, part) {
				t.Errorf("fairway %s: %s, want %q", c.line, said, part)
			}
		}
	}
}

// rootsOwn is a folder that others can't enter.
func rootsOwn(t *testing.T) string {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir + "/data"
}

// TestAdviceOnModes: where the kernel lacks a module, its name is part of the advice.
func TestAdviceOnModes(t *testing.T) {
	root := newRoot()
	agent, _, err := root.Find([]string{"agent"})
	if err != nil {
		t.Fatal(err)
	}
	lacking := func(what string) string {
		return advise(agent, &kernel.MissingError{What: what, Since: "2.6", Err: syscall.ENOENT}).Error()
	}
	if got := lacking("ip_vs"); strings.Contains(got, "--mode") {
		t.Errorf("advice on a mode that nobody asked for: %s", got)
	}
	if err := agent.ParseFlags([]string{"--mode", "ipvs"}); err != nil {
		t.Fatal(err)
	}
	if got := lacking("ip_vs"); !strings.HasSuffix(got, ": try modprobe ip_vs, or --mode auto") {
		t.Error(got)
	}
	if got := lacking("dummy interfaces"); !strings.HasSuffix(got, ": --mode auto takes one that this machine has") {
		t.Error(got)
	}
}
