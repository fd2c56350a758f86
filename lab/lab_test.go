package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/cmd"
	"github.com/fairway-net/fairway/dataplane/userspace"
	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/legacytrace"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/vm"
)

// waitTimeout is how long to wait for what will happen. A virtual machine may be
// emulated, where the start of an agent alone takes a minute.
var waitTimeout = map[bool]time.Duration{false: time.Minute, true: 10 * time.Minute}[vm.Inside()]

// beFairway in the environment makes this test binary the fairway binary, which
// a lab starts in its other roles.
const beFairway = "FAIRWAY_TEST_BE_FAIRWAY"

func TestMain(m *testing.M) {
	cgroupsock.Main()  // returns unless this process makes sockets
	legacytrace.Main() // returns unless this process keeps a setting for traces
	userspace.Main()   // returns unless this process is a relay
	if os.Getenv(beFairway) != "" {
		os.Exit(cmd.Main())
	}
	if err := os.Setenv(beFairway, "yes"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// fairway runs a command line of the binary.
func fairway(args ...string) (stdout, stderr string, code int) {
	var out, err bytes.Buffer
	c := exec.Command(os.Args[0], args...)
	c.Stdout, c.Stderr = &out, &err
	// The exit code says it all; 255 is for what never ran.
	code = 255
	if runErr := c.Run(); c.ProcessState != nil {
		code = c.ProcessState.ExitCode()
	} else {
		err.WriteString(runErr.Error())
	}
	return out.String(), err.String(), code
}

func config(name string) lab.Config {
	c := lab.DefaultConfig()
	c.Name, c.Nodes, c.Mode = fmt.Sprintf("t%d-%s", os.Getpid(), name), 2, lab.NoMode
	return c
}

// up makes a lab and removes it at the end of the test, if that hasn't.
func up(t *testing.T, c lab.Config) {
	t.Helper()
	if err := lab.Up(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(c.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

// nothingLeft checks that a lab has left nothing: state, processes (those in its
// cgroups keep them alive), namespaces, or links of the host.
func nothingLeft(t *testing.T, name string, linksBefore []string) {
	t.Helper()
	if _, err := os.Stat(lab.Dir(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("state is left: %v", err)
	}
	if left, err := topology.Exists(name); err != nil || left {
		t.Errorf("namespaces or cgroups are left: %v, %v", left, err)
	}
	if after := links(t); !slices.Equal(linksBefore, after) {
		t.Errorf("the host had links %v, now has %v", linksBefore, after)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		line, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(line), name+"/") {
			t.Errorf("%s is left: %q", p, line)
		}
	}
}

func links(t *testing.T) []string {
	t.Helper()
	list, err := kernel.List(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range list {
		names = append(names, l.Attrs().Name)
	}
	return names
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := range wait.Tries(waitTimeout) {
		if is() {
			break
		}
		if late {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func hello(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "hello"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "hello", Image: "hello", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
				}}},
			},
		},
	}
}

func TestLab(t *testing.T) {
	before := links(t)
	c := config("whole")
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(4), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deployment is available", func() bool {
		d, err := client.AppsV1().Deployments("default").Get(t.Context(), "hello", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return d.Status.AvailableReplicas == 4
	})
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	onNode := map[string]int{}
	for _, p := range pods.Items {
		onNode[p.Spec.NodeName]++
	}
	if len(onNode) != 2 || onNode["node1"] != 2 {
		t.Errorf("pods by node: %v", onNode)
	}
	checkExec(t, c.Name, pods.Items[0].Name)
	if out, _, code := fairway("lab", "status", "--name", c.Name); code != 0 || !strings.Contains(out, "node2   172.30.0.12   10.244.2.0/24   zone-b   2") {
		t.Errorf("status: %d, %s", code, out)
	}
	const columns = "custom-columns=:metadata.name,:status.nodeInfo.kubeletVersion,:status.capacity.cpu,:metadata.annotations.fairway\\.dev/lab-mode"
	out, stderr, code := fairway("lab", "kubectl", "--name", c.Name, "get", "nodes", "--no-headers", "-o", columns)
	if want := fmt.Sprintf("node1 %s %d <none>", apiserver.KubernetesVersion, runtime.NumCPU()); code != 0 || !strings.HasPrefix(strings.Join(strings.Fields(out), " "), want) {
		t.Errorf("nodes: %d, %q, %q; want %q first", code, out, stderr, want)
	}
	var welcome strings.Builder
	if err := lab.WriteWelcome(t.Context(), &welcome, c.Name); err != nil || !strings.Contains(welcome.String(), "mode "+c.Mode) {
		t.Errorf("it says %q when it is up (%v)", welcome.String(), err)
	}
	if err := lab.Up(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is up already") {
		t.Errorf("a second lab of the name: %v", err)
	}
	if _, stderr, code := fairway("lab", "down", "--name", c.Name); code != 0 {
		t.Errorf("down: %d, %s", code, stderr)
	}
	nothingLeft(t, c.Name, before)
	if _, stderr, code := fairway("lab", "down", "--name", c.Name); code != 1 || !strings.Contains(stderr, "there is no lab") {
		t.Errorf("down again: %d, %s", code, stderr)
	}
}

func checkExec(t *testing.T, name, pod string) {
	t.Helper()
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
	}{
		{[]string{pod, "--", "sh", "-c", "readlink /proc/self/ns/net"}, 0, inside(t, topology.PodNamespace(name, "default."+pod))},
		{[]string{"default/" + pod, "--", "sh", "-c", "readlink /proc/self/ns/net"}, 0, inside(t, topology.PodNamespace(name, "default."+pod))},
		{[]string{"node1", "--", "sh", "-c", "readlink /proc/self/ns/net"}, 0, inside(t, topology.HostNamespace(name, "node1"))},
		{[]string{"node1", "--", "hostname"}, 0, "node1"},
		{[]string{"default/" + pod, "--", "hostname"}, 0, pod},
		{[]string{"client", "sh", "--", "-c", "exit 7"}, 7, ""},
		{[]string{"client", "--", "no-such-program"}, 1, ""},
		{[]string{"node9", "--", "true"}, 1, ""},
	} {
		out, stderr, code := fairway(append([]string{"lab", "exec", "--name", name}, c.args...)...)
		if code != c.code || strings.TrimSpace(out) != c.stdout || (code == 1) != (stderr != "") {
			t.Errorf("exec %v: code %d, %q, %q; want code %d, %q", c.args, code, out, stderr, c.code, c.stdout)
		}
	}
}

// inside names a network namespace as the kernel does.
func inside(t *testing.T, namespace string) (link string) {
	t.Helper()
	ns, err := netns.Open(namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := ns.Do(func() error {
		link, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return link
}

func TestCrashedLabBesideAnother(t *testing.T) {
	before := links(t)
	crashed, other := config("crash"), config("crash-2")
	up(t, crashed)
	up(t, other)
	s, err := lab.Load(crashed.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Supervisor.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "status says that it crashed", func() bool {
		out, _, _ := fairway("lab", "status")
		return slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.HasPrefix(line, crashed.Name+" ") && strings.Contains(line, "crashed")
		})
	})
	if err := lab.Up(t.Context(), crashed); err == nil || !strings.Contains(err.Error(), "lab down --name "+crashed.Name) {
		t.Errorf("making it again: %v", err)
	}
	if err := lab.Down(crashed.Name); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, crashed.Name, before)
	client, err := lab.Client(other.Name)
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil || len(nodes.Items) != 2 {
		t.Errorf("the other lab has suffered: %v", err)
	}
	up(t, crashed) // and again, now that nothing is left
}

func TestFailedStartLeavesNothing(t *testing.T) {
	before := links(t)
	c := config("fails")
	c.Mode, c.AgentArgs = "auto", []string{"--no-such-flag"}
	if err := lab.Up(t.Context(), c); err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("a lab whose agents can't run: %v", err)
	}
	nothingLeft(t, c.Name, before)
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	before := links(t)
	c := config("interrupted")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- lab.Up(ctx, c) }()
	eventually(t, "its API server starts", func() bool {
		_, err := os.Stat(filepath.Join(lab.Dir(c.Name), "server.log"))
		return err == nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Up: %v", err)
	}
	nothingLeft(t, c.Name, before)
}

func TestProcessesAreStartedAgain(t *testing.T) {
	c := config("restarts")
	up(t, c)
	dir, err := topology.FindCgroup(c.Name, "server")
	if err != nil {
		t.Skipf("NO CGROUPS HERE: processes of a lab can't be found: %v", err)
	}
	pid := func() int {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(procs))) // 0 for none
		return n
	}
	first := pid()
	if first == 0 {
		t.Fatal("no API server process")
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API answers again, at the same port", func() bool {
		list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 2 && pid() != first
	})
}

func TestBadConfig(t *testing.T) {
	for field, change := range map[string]func(*lab.Config){
		"nodes":         func(c *lab.Config) { c.Nodes = 0 },
		"image":         func(c *lab.Config) { c.Images = []string{"web"} },
		"mode":          func(c *lab.Config) { c.Mode = "fast" },
		"lab name":      func(c *lab.Config) { c.Name = "../etc" },
		"40 characters": func(c *lab.Config) { c.Name = strings.Repeat("x", 41) },
		"service CIDRs": func(c *lab.Config) { c.ServiceCIDRs = nil },
	} {
		c := lab.DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := lab.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}
