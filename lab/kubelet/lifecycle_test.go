package kubelet_test

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// TestInitContainers: one after the other, each to its end, before the others; a
// sidecar goes on running.
func TestInitContainers(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	first, second, side := shell("while ! test -e "+dir+"/go; do sleep 0.05; done; echo first >> "+dir+"/order"), shell("echo second >> "+dir+"/order"), shell("echo sidecar; exec sleep 1000")
	first.Name, second.Name, side.Name = "first", "second", "side"
	side.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	p := pod("inits", shell("echo main >> "+dir+"/order; exec sleep 1000"))
	p.Spec.InitContainers = []corev1.Container{first, {Name: "no-program", Image: "example.org/migrate"}, side, second}
	b.create(p)
	p = b.wait("inits", "initializing", func(p *corev1.Pod) bool {
		return len(p.Status.InitContainerStatuses) == 4 && p.Status.InitContainerStatuses[0].State.Running != nil
	})
	if s := p.Status.ContainerStatuses[0].State.Waiting; p.Status.Phase != corev1.PodPending || s == nil || s.Reason != "PodInitializing" {
		t.Errorf("phase %s, container %+v", p.Status.Phase, p.Status.ContainerStatuses[0].State)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p = b.wait("inits", "ready", ready)
	for i, s := range p.Status.InitContainerStatuses {
		if !s.Ready || (s.State.Terminated == nil) != (i == 2) {
			t.Errorf("init container %s: %+v", s.Name, s)
		}
	}
	order, err := os.ReadFile(filepath.Join(dir, "order"))
	for err == nil && string(order) == "first\nsecond\n" { // it is ready before it writes
		order, err = os.ReadFile(filepath.Join(dir, "order"))
	}
	if err != nil || string(order) != "first\nsecond\nmain\n" {
		t.Errorf("order %q (%v)", order, err)
	}
	b.terminate("inits", 5)
	b.wait("inits", "gone", gone)
}

// TestInitContainerFails: for good with restartPolicy Never, else it is tried again;
// either can be deleted meanwhile.
func TestInitContainerFails(t *testing.T) {
	b := newBench(t)
	never, always := pod("never", echoes(80)), pod("always", echoes(80))
	never.Spec.RestartPolicy = corev1.RestartPolicyNever
	fails := shell("exit 3")
	never.Spec.InitContainers, always.Spec.InitContainers = []corev1.Container{fails}, []corev1.Container{fails}
	b.create(never)
	b.create(always)
	b.wait("never", "failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	b.wait("always", "tried again", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodPending && len(p.Status.InitContainerStatuses) == 1 && p.Status.InitContainerStatuses[0].RestartCount > 0
	})
	for _, name := range []string{"never", "always"} {
		b.terminate(name, 0)
		b.wait(name, "gone", gone)
	}
}

// TestLivenessAndStartup: a container isn't ready before its startup probe has
// passed, and is started again when its liveness probe fails: a command and an echo
// server.
func TestLivenessAndStartup(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	exists := func(name string) corev1.ProbeHandler {
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", filepath.Join(dir, name)}}}
	}
	for name, c := range map[string]corev1.Container{"command": shell("exec sleep 1000"), "server": echoes(80)} {
		c.StartupProbe = &corev1.Probe{ProbeHandler: exists("started"), PeriodSeconds: 1, FailureThreshold: 1000}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: exists("alive"), PeriodSeconds: 1, FailureThreshold: 1}
		b.create(pod(name, c))
		b.wait(name, "running and not started", func(p *corev1.Pod) bool {
			return running(p) && !*p.Status.ContainerStatuses[0].Started && !ready(p)
		})
	}
	for _, name := range []string{"alive", "started"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"command", "server"} {
		if p := b.wait(name, "ready", ready); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: %+v", name, p.Status.ContainerStatuses[0])
		}
	}
	if err := os.Remove(filepath.Join(dir, "alive")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"command", "server"} {
		b.wait(name, "started again", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount > 0 })
		b.terminate(name, 0)
		b.wait(name, "gone", gone)
	}
}

// TestPostStart: the hook runs before the container is ready; if it fails, the
// container is started again.
func TestPostStart(t *testing.T) {
	b := newBench(t)
	flag := filepath.Join(t.TempDir(), "flag")
	good, bad := shell("exec sleep 1000"), shell("exec sleep 1000")
	good.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"touch", flag}}}}
	bad.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(81)}}}
	b.create(pod("good", good))
	b.create(pod("bad", bad))
	b.wait("good", "ready", ready)
	if _, err := os.Stat(flag); err != nil {
		t.Error("ready before its hook has run:", err)
	}
	b.wait("bad", "started again", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0 && !ready(p)
	})
	for _, name := range []string{"good", "bad"} {
		b.terminate(name, 0)
		b.wait(name, "gone", gone)
	}
}
