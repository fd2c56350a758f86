package lab_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/foreign"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/controlplane"
)

// kubernetesEnv is a directory of Kubernetes' own programs (see
// hack/kubernetes/build).
const kubernetesEnv = "FAIRWAY_KUBERNETES"

func kubernetesBinaries(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(kubernetesEnv)
	if dir == "" {
		t.Skipf("NOT TESTED: %s names no directory with Kubernetes' own programs (make kubernetes builds them)", kubernetesEnv)
	}
	return dir
}

// modes are those that need nothing that this kernel may lack.
var modes = []string{"nftables", "iptables", "ebpf", "userspace"}

// TestKubernetes: agents with no more than kube-proxy's permissions and
// configuration serve a cluster whose control plane is Kubernetes' own.
func TestKubernetes(t *testing.T) {
	c := newCluster(t, kubernetesBinaries(t))
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			p := c.start(t, fairwayProxy(mode))
			c.works(t)
			load := c.load(t, false)
			c.replacePods(t)
			load.check(t, "rolling update", "")
			c.works(t)
			c.stop(t, p)
			c.cleanUp(t)
		})
	}
	c.checkAudit(t)
}

// checkAudit reads kube-apiserver's audit log: what the proxies' user asked for
// was allowed by the role of Kubernetes 1.28, and by the server at hand.
func (c *cluster) checkAudit(t *testing.T) {
	t.Helper()
	f, err := os.Open(lab.KubernetesAuditLog(c.lab))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	used := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct {
			Verb, UserAgent string
			User            struct{ Username string }
			ObjectRef       struct{ APIGroup, Resource, Subresource string }
			ResponseStatus  struct{ Code int }
			RequestURI      string
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.User.Username != controlplane.ProxyUser || strings.HasPrefix(e.UserAgent, "kube-proxy/") {
			continue
		}
		a := foreign.Access{Verb: e.Verb, Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}
		if e.ObjectRef.Subresource != "" {
			a.Resource += "/" + e.ObjectRef.Subresource
		}
		used[fmt.Sprintf("%s %s.%s", a.Verb, a.Resource, a.Group)]++
		if e.ResponseStatus.Code == 403 || !foreign.Allowed(foreign.NodeProxier(), a) {
			t.Errorf("asked for more than kube-proxy may: %s %s, answered %d", e.Verb, e.RequestURI, e.ResponseStatus.Code)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("used: %v", used)
	for _, want := range []string{"watch services.", "watch endpointslices.discovery.k8s.io", "watch nodes."} {
		if used[want] == 0 {
			t.Errorf("nobody used %q, so that the log says nothing: %v", want, used)
		}
	}
}

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
