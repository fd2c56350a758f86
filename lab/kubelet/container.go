package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/lab/echo"
)

// quiet is how long an echo server that shall end must have had nothing to do:
// longer than it takes for the news to reach every node.
const quiet = time.Second

// process is what runs in a container.
type process interface {
	// state says whether it runs or how it ended, and how often it was
	// started again.
	state() (corev1.ContainerState, int32)
	// stop ends it gracefully, or as soon as the context ends.
	stop(ctx context.Context)
	// kill ends it at once.
	kill() error
	// restart ends it so that it is started again, with a grace period first.
	// It says whether that has happened already.
	restart(grace time.Duration) (again bool, err error)
}

// container is a process with its probes and hooks.
type container struct {
	spec    *corev1.Container
	policy  corev1.RestartPolicy
	worker  *worker
	sandbox *sandbox
	process

	mu      sync.Mutex
	started bool // postStart and the startup probe are through
	ready   bool // by the readiness probe
	ended   bool // stopped or killed
	watch   *watch
}

// startContainer starts the command of a container from the host's file system,
// or without one an echo server on its ports.
func startContainer(ctx context.Context, w *worker, spec *corev1.Container, policy corev1.RestartPolicy) (*container, error) {
	c := &container{spec: spec, policy: policy, worker: w, sandbox: w.sandbox}
	var err error
	if w.kubelet.argv(spec) != nil {
		c.process, err = startCommand(w, spec, policy, func() { c.begin(ctx) })
	} else {
		w.explainImage(spec)
		c.process, err = startEcho(w, spec)
	}
	if err != nil {
		return nil, err
	}
	c.begin(ctx)
	return c, nil
}

// stop runs the preStop hook and ends the process, both within the context.
func (c *container) stop(ctx context.Context) {
	if l := c.spec.Lifecycle; l != nil && l.PreStop != nil {
		if err := c.hook(ctx, l.PreStop); err != nil {
			c.worker.kubelet.events.Eventf(c.worker.first, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: %v", err)
		}
	}
	if _, isEcho := c.process.(*echoProcess); isEcho {
		c.stopProbing() // a probe a second would keep it from being quiet
	}
	c.process.stop(ctx)
	c.kill()
}

// kill ends the container at once; again is no error.
func (c *container) kill() {
	c.mu.Lock()
	ended := c.ended
	c.ended = true
	c.mu.Unlock()
	if ended {
		return
	}
	c.stopProbing()
	if err := c.process.kill(); err != nil {
		slog.Error("a container could not be ended", "pod", c.worker.first.Name, "container", c.spec.Name, "error", err)
	}
	c.worker.notify()
}

// over says whether the container has ended for good, and whether well.
func (c *container) over() (ended, well bool) {
	state, _ := c.state()
	if state.Terminated == nil || restarts(c.policy, state.Terminated.ExitCode) {
		return false, false
	}
	return true, state.Terminated.ExitCode == 0
}

// status is the container's part of the pod's status.
func (c *container) status() corev1.ContainerStatus {
	state, restarts := c.state()
	var last corev1.ContainerState
	if own, ok := c.process.(*command); ok {
		last = own.lastState()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	running := state.Running != nil
	started := running && c.started
	return corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, State: state, RestartCount: restarts,
		Ready: started && c.ready && !c.ended && !c.worker.unready(), Started: &started,
		LastTerminationState: last,
		ContainerID:          fmt.Sprintf("lab://%s/%s", c.worker.uid, c.spec.Name),
	}
}

// echoProcess answers on the container's ports.
type echoProcess struct {
	start func() (*echo.Server, error)

	mu       sync.Mutex
	server   *echo.Server
	ports    []echo.Port
	started  metav1.Time
	restarts int32
	ended    *metav1.Time
}

func startEcho(w *worker, spec *corev1.Container) (*echoProcess, error) {
	name, in := w.pod.Name, w.sandbox.host
	e := &echoProcess{started: metav1.Now(), ports: echoPorts(spec)}
	e.start = func() (*echo.Server, error) { return echo.Start(name, e.ports, in.Do) }
	var err error
	e.server, err = e.start()
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (e *echoProcess) restart(time.Duration) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended != nil {
		return false, nil
	}
	if err := e.server.Close(); err != nil {
		return false, err
	}
	s, err := e.start()
	if err != nil {
		return false, err
	}
	e.server, e.started = s, metav1.Now()
	e.restarts++
	return true, nil
}

// open has it answer on another port, too, unless it does already or has ended.
func (e *echoProcess) open(p echo.Port) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended != nil || slices.Contains(e.ports, p) {
		return nil
	}
	e.ports = append(e.ports, p) // also if it fails: it would fail again
	return e.server.Open(p)
}

func (e *echoProcess) current() *echo.Server {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.server
}

func (e *echoProcess) state() (corev1.ContainerState, int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended != nil {
		return terminated(0, e.started, *e.ended), e.restarts
	}
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: e.started}}, e.restarts
}

func (e *echoProcess) stop(ctx context.Context) {
	// Connections that outlast the grace period are cut, as in Kubernetes.
	if err := e.current().Drain(ctx, quiet); err != nil && !errors.Is(err, context.Canceled) {
		slog.Error("an echo server could not be drained", "error", err)
	}
}

func (e *echoProcess) kill() error {
	e.mu.Lock()
	if e.ended == nil {
		now := metav1.Now()
		e.ended = &now
	}
	e.mu.Unlock()
	return e.current().Close()
}

func terminated(code int, started, ended metav1.Time) corev1.ContainerState {
	t := &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: "Completed", StartedAt: started, FinishedAt: ended}
	if code != 0 {
		t.Reason = "Error"
	}
	return corev1.ContainerState{Terminated: t}
}
