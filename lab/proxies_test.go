package lab_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// proxy is a kind of node proxy: a mode of Fairway's agent, or of kube-proxy.
type proxy struct {
	name    string
	mode    string
	fairway bool
	build   string   // Fairway's binary, if it isn't this one
	flags   []string // beside those that all have
}

func fairwayProxy(mode string) proxy {
	return proxy{name: "fairway in " + mode + " mode", mode: mode, fairway: true, build: os.Args[0]}
}

func kubeProxy(mode string) proxy {
	return proxy{name: "kube-proxy in " + mode + " mode", mode: mode}
}

// running is a proxy on all nodes.
type running struct {
	proxy
	commands map[string]*exec.Cmd // by node
	logs     map[string]string
}

// start starts a proxy on all nodes and waits until it says that it has
// programmed them.
func (c *cluster) start(t *testing.T, p proxy) *running {
	t.Helper()
	r := c.launch(t, p)
	for _, node := range c.nodes {
		eventually(t, p.name+" has programmed "+node, func() bool { return c.healthy(t, node) })
	}
	happened(t, "%s is well", p.name)
	return r
}

// launch starts a proxy on all nodes.
func (c *cluster) launch(t *testing.T, p proxy) *running {
	t.Helper()
	r := &running{p, map[string]*exec.Cmd{}, map[string]string{}}
	for _, node := range c.nodes {
		config, err := c.configure(node, p.mode)
		if err != nil {
			t.Fatal(err)
		}
		program := []string{filepath.Join(c.binaries, "kube-proxy")}
		if p.fairway {
			program = []string{p.build, "agent", "--state-dir", c.stateDir(node), "--cgroup", c.cgroup(node)}
		}
		args := append([]string{"lab", "exec", "--name", c.lab, node, "--"}, append(program, p.flags...)...)
		cmd := exec.Command(os.Args[0], append(args, "--config", config, "--hostname-override", node)...)
		r.logs[node] = filepath.Join(t.TempDir(), "log")
		log, err := os.Create(r.logs[node])
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		r.commands[node] = cmd
	}
	t.Cleanup(func() { // unless it has been stopped
		for node, cmd := range r.commands {
			if t.Failed() { // what was stopped is the less of interest
				t.Logf("%s on %s said: %s", p.name, node, tailOf(r.logs[node]))
			}
			_, _ = cmd.Process.Kill(), cmd.Wait() // it ends, one way or the other
		}
	})
	return r
}

// stop ends a proxy as the kubelet would, which leaves what it has programmed.
func (c *cluster) stop(t *testing.T, r *running) {
	t.Helper()
	for node, cmd := range r.commands {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // by the signal, or with an exit code of its own
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%s doesn't end at %s", r.name, syscall.SIGTERM)
			_ = cmd.Process.Kill() // the next one needs its ports
			<-ended
		}
		delete(r.commands, node)
	}
	happened(t, "%s has ended", r.name)
}

// happened notes when something did, to be held against what failed.
func happened(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%s %s", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// cleanUp removes what Fairway's modes have left on the nodes, and, unless told
// otherwise, what kube-proxy has.
func (c *cluster) cleanUp(t *testing.T, flags ...string) {
	t.Helper()
	for _, node := range c.nodes {
		args := append([]string{"lab", "exec", "--name", c.lab, node, "--", os.Args[0], "cleanup", "--state-dir", c.stateDir(node), "--cgroup", c.cgroup(node)}, flags...)
		if len(flags) == 0 {
			args = append(args, "--kube-proxy")
		}
		if stdout, stderr, code := fairway(args...); code != 0 {
			t.Errorf("cleanup on %s: %s%s", node, stdout, stderr)
		}
	}
	happened(t, "cleaned up")
}

func tailOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-6000):])
}
