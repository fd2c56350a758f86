package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/cmd"
	"github.com/fairway-net/fairway/internal/foreign"
	"github.com/fairway-net/fairway/internal/netns"
)

// playFairway makes the test binary play Fairway.
const playFairway = "FAIRWAY_TEST_PLAY_FAIRWAY"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(playFairway) != "":
		os.Exit(cmd.Main())
	case os.Getenv(containerVariable) != "":
		fmt.Fprintln(os.Stderr, "become a container:", become(os.Getenv(containerVariable)))
		os.Exit(125)
	}
	os.Exit(m.Run())
}

const (
	nodeName = "worker-1" // of the recorded objects
	podAddr  = "10.244.1.5"
	apiToken = "the-account's-token"
)

// host is a network namespace in the place of a machine, with a foreign API
// server and one pod, both on its loopback, and what a kubelet keeps for a pod.
type host struct {
	t   *testing.T
	ns  *netns.NS
	api *foreign.Server
	url string
	ca  []byte
	dir string
}

func newHost(t *testing.T) *host {
	t.Helper()
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, ns: ns, api: foreign.NewServer(), dir: t.TempDir()}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	h.api.Token, h.api.Rules = apiToken, foreign.NodeProxier()
	h.network()
	err = ns.Do(func() (err error) {
		var closer func()
		if h.url, h.ca, closer, err = h.api.Listen("127.0.0.1:0"); err == nil {
			t.Cleanup(closer)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.pod(podAddr, "web")
	if err := os.Mkdir(filepath.Join(h.dir, "fairway"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "xtables.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// network gives the machine its address, and a route for all others.
func (h *host) network() {
	h.t.Helper()
	handle, err := h.ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		h.t.Fatal(err)
	}
	defer handle.Close()
	must := func(err error) {
		h.t.Helper()
		if err != nil {
			h.t.Fatal(err)
		}
	}
	lo, err := handle.LinkByName("lo")
	must(err)
	must(handle.LinkSetUp(lo))
	must(handle.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(podAddr))}))
	must(handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "wire"}))
	eth, err := handle.LinkByName("eth0")
	must(err)
	address, err := netlink.ParseAddr("192.0.2.11/24")
	must(err)
	must(handle.AddrAdd(eth, address))
	must(handle.LinkSetUp(eth))
	must(handle.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.ParseIP("192.0.2.1")}))
}

// pod answers on port 8080 with its name and then repeats what it is told, until
// the test ends.
func (h *host) pod(address, name string) {
	h.t.Helper()
	err := h.ns.Do(func() error {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "8080"))
		if err != nil {
			return err
		}
		h.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.WriteString(c, name+"\n")
					_, _ = io.Copy(c, c)
					_ = c.Close()
				}()
			}
		}()
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// connection is a client's, as a process of the machine.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func (h *host) connect(address string) (c *connection, name string, err error) {
	err = h.ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err != nil {
			return err
		}
		c = &connection{conn, bufio.NewReader(conn)}
		name, err = c.line()
		return err
	})
	if err != nil && c != nil {
		err = errors.Join(err, c.Close())
	}
	return c, name, err
}

func (c *connection) line() (string, error) {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	text, err := c.in.ReadString('\n')
	return strings.TrimSuffix(text, "\n"), err
}

// lives tells whether the pod at the other end still answers.
func (c *connection) lives(t *testing.T, when string) {
	t.Helper()
	_, err := io.WriteString(c, when+"\n")
	var got string
	if err == nil {
		got, err = c.line()
	}
	if err != nil || got != when {
		t.Errorf("%s: the connection says %q, %v", when, got, err)
	}
}

// ask connects and returns the name of who answers.
func (h *host) ask(address string) (string, error) {
	c, name, err := h.connect(address)
	if err != nil {
		return "", err
	}
	return name, c.Close()
}

func (h *host) do(format string, args ...any) {
	h.t.Helper()
	if _, err := h.api.Do(fmt.Sprintf(format, args...)); err != nil {
		h.t.Fatal(err)
	}
}

// process is a running container.
type process struct {
	t       *testing.T
	command *exec.Cmd
	log     *logBuffer
	ended   chan struct{}
	err     error
}

// run starts a container of the pod as the manifest says, with changes to the
// ConfigMap and to the environment.
func (h *host) run(pod *corev1.PodSpec, c *corev1.Container, environ ...string) *process {
	h.t.Helper()
	spec := container{Args: slices.Clone(c.Args), Root: h.t.TempDir(), Files: map[string]string{}, Mounts: map[string]string{}}
	account := "/run/secrets/kubernetes.io/serviceaccount/"
	spec.Files[account+"token"], spec.Files[account+"ca.crt"], spec.Files[account+"namespace"] = apiToken, string(h.ca), "kube-system"
	for _, m := range c.VolumeMounts {
		volume := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
		switch {
		case volume.ConfigMap != nil:
			spec.Mounts[m.MountPath] = filepath.Join(h.dir, "config")
		case m.ReadOnly:
			spec.Visible = append(spec.Visible, m.MountPath)
		default: // the machine's own, of which each test has one
			spec.Mounts[m.MountPath] = filepath.Join(h.dir, filepath.Base(volume.HostPath.Path))
		}
	}
	for i, a := range spec.Args {
		spec.Args[i] = strings.ReplaceAll(a, "$(NODE_NAME)", nodeName)
	}
	security := c.SecurityContext
	spec.Privileged = security.Privileged != nil && *security.Privileged
	if security.Capabilities != nil {
		for _, name := range security.Capabilities.Add {
			spec.Capabilities = append(spec.Capabilities, string(name))
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		h.t.Fatal(err)
	}
	p := &process{t: h.t, command: exec.Command(os.Args[0]), log: &logBuffer{}, ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), append(environ, containerVariable+"="+string(text), "NODE_NAME="+nodeName)...)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	p.command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: 0}
	if err := h.ns.Start(p.command); err != nil {
		h.t.Fatal(err)
	}
	go func() { p.err = p.command.Wait(); close(p.ended) }()
	h.t.Cleanup(p.kill)
	return p
}

// kill ends the container as SIGKILL does.
func (p *process) kill() {
	select {
	case <-p.ended:
		return
	default:
	}
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	<-p.ended
}

// wait waits for a container that ends by itself.
func (p *process) wait() {
	p.t.Helper()
	select {
	case <-p.ended:
		if p.err != nil {
			p.t.Fatalf("container: %v\n%s", p.err, p.log)
		}
	case <-time.After(60 * time.Second):
		p.t.Fatalf("the container goes on\n%s", p.log)
	}
}

// logBuffer is a buffer for several goroutines.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// answers waits until the Service answers with a name; "" waits until nobody
// does.
func (h *host) answers(p *process, address, want string) {
	h.t.Helper()
	var got string
	var err error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		got, err = h.ask(address)
		if err == nil && got == want || err != nil && want == "" {
			return
		}
		select {
		case <-p.ended:
			h.t.Fatalf("the agent ended: %v\n%s", p.err, p.log)
		default:
		}
	}
	h.t.Fatalf("%s answers %q, %v; want %q\n%s", address, got, err, want, p.log)
}

// daemonPod is the pod that the manifests in a folder run.
func daemonPod(t *testing.T, folder string) *corev1.PodSpec {
	t.Helper()
	return &find[appsv1.DaemonSet](build(t, folder), "fairway").Spec.Template.Spec
}

// TestPod runs the pod of the DaemonSet as a container runtime would: its
// capabilities and no others, nothing to write to but its volumes, the network
// of the host, the account's token, the role of kube-proxy, and kube-proxy's own
// ConfigMap as kubeadm writes it. While it runs, the ConfigMap changes modes.
func TestPod(t *testing.T) {
	pod := daemonPod(t, "kubeadm")
	// The rest of what the manifest gives is for other modes, and for
	// iptables-legacy.
	pod.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	nftables := listing{[]string{"nft", "list", "ruleset"}, "table inet fairway"}
	iptables := listing{[]string{"iptables-save", "-t", "nat"}, "KUBE-SERVICES"}
	for _, test := range []struct {
		mode, version, vip string
		listing            listing
		to                 string
		then               listing
		inCluster          bool
	}{
		{"nftables", "1.28", "10.96.28.80", nftables, "iptables", iptables, true},
		{"iptables", "1.37", "10.96.37.80", iptables, "nftables", nftables, false},
	} {
		t.Run(test.mode, func(t *testing.T) {
			h := newHost(t)
			h.serve(test.version)
			environ := h.configure(test.mode, test.inCluster)
			address := netip.AddrPortFrom(netip.MustParseAddr(test.vip), 80).String()
			h.run(pod, &pod.InitContainers[0], environ...).wait()
			agent := h.run(pod, &pod.Containers[0], environ...)
			h.answers(agent, address, "web")
			h.lists(test.listing, true)
			h.playTroubles(agent, address)

			held, _, err := h.connect(address)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			h.configure(test.to, test.inCluster)
			h.lists(test.then, true)
			h.lists(test.listing, false)
			h.answers(agent, address, "web")
			held.lives(t, "after another mode")

			agent.kill()
			if got, err := h.ask(address); got != "web" {
				t.Errorf("after a kill: %q, %v", got, err)
			}
			h.do("delete services shop/web")
			agent = h.run(pod, &pod.Containers[0], environ...)
			h.answers(agent, address, "")
			held.lives(t, "after the Service")
			h.role()
		})
	}
}

// TestPodEBPF runs the pod with the component ebpf: without it, the mode lacks
// privileges, and says so.
func TestPodEBPF(t *testing.T) {
	h := newHost(t)
	h.serve("1.28")
	environ := h.configure("ebpf", true)
	bpf := filepath.Join(h.dir, "bpf")
	if err := os.Mkdir(bpf, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", bpf, "bpf", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // and all programs with it
		if err := unix.Unmount(bpf, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	pod := daemonPod(t, "testdata/ebpf")
	h.run(pod, &pod.InitContainers[0], environ...).wait()
	agent := h.run(pod, &pod.Containers[0], environ...)
	h.answers(agent, "10.96.28.80:80", "web")
	h.role()
	agent.kill()

	plain := daemonPod(t, "kubeadm")
	agent = h.run(plain, &plain.Containers[0], environ...)
	select {
	case <-agent.ended:
	case <-time.After(60 * time.Second):
		t.Fatalf("goes on without privileges\n%s", agent.log)
	}
	if log := agent.log.String(); !strings.Contains(log, "CAP_BPF") {
		t.Errorf("without privileges it says:\n%s", log)
	}
}

// serve has the API serve what was recorded of a version.
func (h *host) serve(version string) {
	h.t.Helper()
	objects, err := foreign.Recorded(version)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, o := range objects {
		if err := h.api.Apply(o); err != nil {
			h.t.Fatal(err)
		}
	}
}

// listing shows what a mode has in the kernel, by a command that prints marks
// then.
type listing struct {
	command []string
	marks   string
}

// configure brings kube-proxy's ConfigMap, as kubeadm writes it, to the node as
// the kubelet does: all files at once, by one link. Or it is one that leaves the
// API server to the environment of the pod, which is returned.
func (h *host) configure(mode string, inCluster bool) (environ []string) {
	h.t.Helper()
	kubeconfig := "/var/lib/kube-proxy/kubeconfig.conf"
	if inCluster {
		kubeconfig = ""
	}
	dir := filepath.Join(h.dir, "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	version, err := os.MkdirTemp(dir, "..version-")
	if err != nil {
		h.t.Fatal(err)
	}
	for name, text := range map[string]string{
		"config.conf":     fmt.Sprintf(kubeadmConfig, kubeconfig, mode),
		"kubeconfig.conf": fmt.Sprintf(kubeadmKubeconfig, h.url),
	} {
		if err := os.WriteFile(filepath.Join(version, name), []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			h.t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		h.t.Fatal(err)
	}
	address := netip.MustParseAddrPort(strings.TrimPrefix(h.url, "https://"))
	return []string{"KUBERNETES_SERVICE_HOST=" + address.Addr().String(), fmt.Sprint("KUBERNETES_SERVICE_PORT=", address.Port())}
}

// lists waits until the kernel holds something, or doesn't any more.
func (h *host) lists(l listing, want bool) {
	h.t.Helper()
	var out []byte
	var err error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		err = h.ns.Do(func() (err error) {
			out, err = exec.Command(l.command[0], l.command[1:]...).CombinedOutput()
			return err
		})
		if err == nil && bytes.Contains(out, []byte(l.marks)) == want {
			return
		}
	}
	h.t.Fatalf("%v: %v; %q is there: want %t\n%s", l.command, err, l.marks, want, out)
}

// playTroubles changes endpoints while the API is as bad as it may be.
func (h *host) playTroubles(agent *process, address string) {
	h.t.Helper()
	for i, trouble := range []string{"cut", "half", "end", "gone", "refuse 6 1", "bookmark"} {
		h.do("%s", trouble)
		ready, want := i%2 == 1, "web"
		if !ready {
			want = ""
		}
		h.slice(ready)
		h.answers(agent, address, want)
	}
	h.slice(true)
	h.answers(agent, address, "web")
	h.tellsAuthor(agent)
}

// tellsAuthor has the agent tell a Service's author, by an Event, what is not
// done as asked.
func (h *host) tellsAuthor(agent *process) {
	h.t.Helper()
	for _, o := range h.api.Objects("services") {
		if o.GetName() != "web" {
			continue
		}
		o = o.DeepCopy()
		o.SetAnnotations(map[string]string{"fairway.dev/scheduler": "nonsense"})
		text, err := o.MarshalJSON()
		if err != nil {
			h.t.Fatal(err)
		}
		if err := h.api.Apply(text); err != nil {
			h.t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		for _, e := range h.api.Objects("events") {
			if e.GetNamespace() == "shop" && strings.Contains(toText(e.Object), "nonsense") {
				return
			}
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("no Event on the Service\n%s", agent.log)
		}
	}
}

func toText(o map[string]any) string {
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// slice makes the endpoint ready or not.
func (h *host) slice(ready bool) {
	h.t.Helper()
	for _, o := range h.api.Objects("endpointslices") {
		if o.GetLabels()["kubernetes.io/service-name"] != "web" {
			continue
		}
		o = o.DeepCopy()
		endpoints, _ := o.Object["endpoints"].([]any)
		for _, e := range endpoints {
			if m, ok := e.(map[string]any); ok && fmt.Sprint(m["addresses"]) == "["+podAddr+"]" {
				m["conditions"] = map[string]any{"ready": ready, "serving": ready, "terminating": false}
				o.Object["endpoints"] = []any{m}
			}
		}
		text, err := o.MarshalJSON()
		if err != nil {
			h.t.Fatal(err)
		}
		if err := h.api.Apply(text); err != nil {
			h.t.Fatal(err)
		}
	}
}

// role: what the agent did is what kube-proxy may do, and it has told the author
// of a Service what isn't done as asked.
func (h *host) role() {
	h.t.Helper()
	seen := h.api.Seen()
	for _, a := range seen.Access {
		if !foreign.Allowed(foreign.NodeProxier(), a) {
			h.t.Errorf("used: %s %s in %q, which system:node-proxier doesn't allow", a.Verb, a.Resource, a.Group)
		}
	}
	h.t.Logf("used of the API: %v", seen.Access)
	if seen.Forbidden > 0 {
		h.t.Errorf("%d requests were forbidden", seen.Forbidden)
	}
}
