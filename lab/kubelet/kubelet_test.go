package kubelet_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/lab/kubelet"
	"github.com/fairway-net/fairway/lab/topology"
)

const waitTimeout = 2 * time.Minute

// bench is a node with a kubelet on a fake API.
type bench struct {
	*testing.T
	client *fake.Clientset
	node   *topology.Node
	logs   string
	events chan string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	l, err := topology.New(fmt.Sprintf("kubelet-%d", os.Getpid()), topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := l.AddNode("node1")
	if err != nil {
		t.Fatal(errors.Join(err, l.Remove()))
	}
	b := &bench{T: t, client: fake.NewClientset(), node: node, logs: t.TempDir(), events: make(chan string, 100_000)}
	factory := informers.NewSharedInformerFactory(b.client, 0)
	k, err := kubelet.New(b.client, factory, &record.FakeRecorder{Events: b.events}, []*topology.Node{node}, b.logs, func(string) (map[string]string, error) { return nil, nil })
	if err != nil {
		t.Fatal(errors.Join(err, l.Remove()))
	}
	k.SetImages(map[string][]string{"example.org/tool": {"/bin/sh", "-c", `echo "$0 $@"; exec sleep 1000`, "tool"}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
		if left := node.Pods(); len(left) > 0 {
			t.Errorf("%d pods left", len(left))
		}
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func pod(name string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: containers},
	}
}

func echoes(port int32) corev1.Container {
	return corev1.Container{Name: "echo", Ports: []corev1.ContainerPort{{Name: "main", ContainerPort: port}}}
}

func shell(script string) corev1.Container {
	return corev1.Container{Name: "sh", Command: []string{"/bin/sh", "-c"}, Args: []string{script}}
}

func (b *bench) create(p *corev1.Pod) {
	b.Helper()
	if _, err := b.client.CoreV1().Pods("default").Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// terminate marks a pod as deleted, as the API server does.
func (b *bench) terminate(name string, grace int64) {
	b.Helper()
	p, err := b.client.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	now := metav1.Now()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	if _, err := b.client.CoreV1().Pods("default").Update(b.Context(), p, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// wait waits for a state of a pod, and returns it; nil if the pod is gone.
func (b *bench) wait(name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	b.Helper()
	var p *corev1.Pod
	for range wait.Tries(waitTimeout) {
		var err error
		p, err = b.client.CoreV1().Pods("default").Get(b.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			p, err = nil, nil
		}
		if err != nil {
			b.Fatal(err)
		}
		if is(p) {
			return p
		}
	}
	b.Fatalf("pod %s is not %s: %+v", name, what, p)
	return nil
}

func gone(p *corev1.Pod) bool { return p == nil }

func ready(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func running(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning }

// connect opens a connection from the node to a pod's port.
func (b *bench) connect(p *corev1.Pod, port uint16) (net.Conn, error) {
	var c net.Conn
	err := b.node.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr(p.Status.PodIP), port).String(), waitTimeout)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(waitTimeout))
}

func ask(c net.Conn) (string, error) {
	if _, err := io.WriteString(c, "who?\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	name, _, _ := strings.Cut(line, " ")
	return name, err
}

func TestEchoPod(t *testing.T) {
	b := newBench(t)
	b.create(pod("hello", echoes(80)))
	p := b.wait("hello", "ready", ready)
	s := p.Status
	if len(s.PodIPs) != 2 || s.PodIPs[0].IP != s.PodIP || s.HostIP != b.node.IPv4().String() || s.Phase != corev1.PodRunning ||
		len(s.ContainerStatuses) != 1 || !s.ContainerStatuses[0].Ready || s.ContainerStatuses[0].State.Running == nil {
		t.Errorf("status: %+v", s)
	}
	c, err := b.connect(p, 80)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := ask(c); err != nil || name != "hello" {
		t.Errorf("answer: %q, %v", name, err)
	}
	// While it terminates, it answers on old and new connections, and ends
	// when they do.
	b.terminate("hello", 600)
	if name, err := ask(c); err != nil || name != "hello" {
		t.Errorf("terminating, on the established connection: %q, %v", name, err)
	}
	late, err := b.connect(p, 80)
	if err != nil {
		t.Fatalf("terminating, on a new connection: %v", err)
	}
	if name, err := ask(late); err != nil || name != "hello" {
		t.Errorf("terminating, on a new connection: %q, %v", name, err)
	}
	if err := errors.Join(c.Close(), late.Close()); err != nil {
		t.Fatal(err)
	}
	b.wait("hello", "gone", gone)
}

func TestGraceEnds(t *testing.T) {
	b := newBench(t)
	b.create(pod("hello", echoes(80)))
	c, err := b.connect(b.wait("hello", "ready", ready), 80)
	if err != nil {
		t.Fatal(err)
	}
	b.terminate("hello", 600)
	b.terminate("hello", 1) // deleted again, with a shorter grace period
	b.wait("hello", "gone", gone)
	if _, err := ask(c); err == nil {
		t.Error("the connection outlasts the grace period")
	}
}

func TestForcedDeletion(t *testing.T) {
	b := newBench(t)
	b.create(pod("hello", echoes(80)))
	b.wait("hello", "ready", ready)
	if err := b.client.CoreV1().Pods("default").Delete(t.Context(), "hello", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The next one of the name gets its place.
	next := pod("hello", echoes(80))
	next.UID = "another"
	b.create(next)
	b.wait("hello", "ready", ready)
}

func TestReadinessProbes(t *testing.T) {
	b := newBench(t)
	flag := filepath.Join(t.TempDir(), "flag")
	for name, handler := range map[string]corev1.ProbeHandler{
		"http-named":  {HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("main")}},
		"tcp":         {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}},
		"exec":        {Exec: &corev1.ExecAction{Command: []string{"test", "-e", flag}}},
		"wrong-port":  {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(81)}},
		"wrong-named": {HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("other")}},
	} {
		c := echoes(80)
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: handler, PeriodSeconds: 1, FailureThreshold: 1}
		b.create(pod(name, c))
	}
	b.wait("http-named", "ready", ready)
	b.wait("tcp", "ready", ready)
	for _, name := range []string{"exec", "wrong-port", "wrong-named"} {
		p := b.wait(name, "running", running)
		if ready(p) {
			t.Errorf("pod %s is ready", name)
		}
	}
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.wait("exec", "ready", ready)
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	b.wait("exec", "unready", func(p *corev1.Pod) bool { return !ready(p) })
}

func TestCommand(t *testing.T) {
	b := newBench(t)
	p := pod("cmd", shell("trap 'echo terminated; exit 0' TERM; echo $NAME $(IP) '$$(IP)'; readlink /proc/self/ns/net; while :; do sleep 0.05; done"))
	p.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
	}
	b.create(p)
	p = b.wait("cmd", "ready", ready)
	var inside string
	if err := b.node.Pods()[0].Do(func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b.waitLog("default_cmd_sh.log", inside)
	b.terminate("cmd", 600)
	b.wait("cmd", "gone", gone)
	log := b.waitLog("default_cmd_sh.log", "terminated")
	if want := fmt.Sprintf("cmd %s $(IP)\n", p.Status.PodIP); !strings.HasPrefix(log, want) {
		t.Errorf("output %q, want it to begin with %q", log, want)
	}
}

func (b *bench) waitLog(name, text string) string {
	b.Helper()
	var log []byte
	for range wait.Tries(waitTimeout) {
		var err error
		if log, err = os.ReadFile(filepath.Join(b.logs, name)); err != nil {
			b.Fatal(err)
		}
		if strings.Contains(string(log), text) {
			return string(log)
		}
	}
	b.Fatalf("the log has no %q: %q", text, log)
	return ""
}

func TestRestarts(t *testing.T) {
	b := newBench(t)
	b.create(pod("again", shell("exit 3")))
	once := pod("once", shell("exit 0"))
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	b.create(once)
	fails := pod("fails", shell("kill -9 $$$$")) // $$ is $ to Kubernetes
	fails.Spec.RestartPolicy = corev1.RestartPolicyNever
	b.create(fails)
	b.wait("once", "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	p := b.wait("fails", "failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if got := p.Status.ContainerStatuses[0].State.Terminated; got == nil || got.ExitCode != 137 {
		t.Errorf("state of a killed container: %+v", got)
	}
	b.wait("again", "started again", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0 && p.Status.Phase == corev1.PodRunning
	})
	b.terminate("again", 0)
	b.wait("again", "gone", gone)
}

func TestBadPodIsRetried(t *testing.T) {
	b := newBench(t)
	missing := filepath.Join(t.TempDir(), "late")
	b.create(pod("late", corev1.Container{Name: "c", Command: []string{missing}}))
	b.create(pod("good", echoes(80)))
	b.wait("good", "ready", ready)
	if err := os.WriteFile(missing, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.wait("late", "ready", ready)
}
