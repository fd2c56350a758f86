package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
}

// container is a process with a readiness probe.
type container struct {
	spec    *corev1.Container
	worker  *worker
	sandbox *sandbox
	process

	mu     sync.Mutex
	ready  bool // by the probe
	ended  bool // stopped or killed
	cancel context.CancelFunc
	probes sync.WaitGroup
}

// startContainer starts the command of a container from the host's file system,
// or without one an echo server on its ports.
func startContainer(ctx context.Context, w *worker, spec *corev1.Container) (*container, error) {
	c := &container{spec: spec, worker: w, sandbox: w.sandbox, ready: spec.ReadinessProbe == nil}
	var err error
	if w.kubelet.program(spec) != nil {
		c.process, err = startCommand(w, spec)
	} else {
		c.process, err = startEcho(w, spec)
	}
	if err != nil {
		return nil, err
	}
	ctx, c.cancel = context.WithCancel(ctx)
	if spec.ReadinessProbe != nil {
		c.probes.Go(func() { c.probe(ctx, spec.ReadinessProbe) })
	}
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
		slog.Error("container not ended", "pod", c.worker.first.Name, "container", c.spec.Name, "err", err)
	}
	c.worker.notify()
}

func (c *container) stopProbing() {
	c.cancel()
	c.probes.Wait()
}

// status is the container's part of the pod's status.
func (c *container) status() corev1.ContainerStatus {
	state, restarts := c.state()
	c.mu.Lock()
	defer c.mu.Unlock()
	running := state.Running != nil
	return corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, State: state, RestartCount: restarts,
		Ready: running && c.ready && !c.ended, Started: &running,
		ContainerID: fmt.Sprintf("lab://%s/%s", c.worker.uid, c.spec.Name),
	}
}

func (c *container) setReady(ready bool) {
	c.mu.Lock()
	changed := c.ready != ready
	c.ready = ready
	c.mu.Unlock()
	if changed {
		c.worker.notify()
	}
}

// echoProcess answers on the container's ports.
type echoProcess struct {
	server  *echo.Server
	started metav1.Time

	mu    sync.Mutex
	ended *metav1.Time
}

func startEcho(w *worker, spec *corev1.Container) (*echoProcess, error) {
	var ports []echo.Port
	for _, p := range spec.Ports {
		ports = append(ports, echo.Port{Number: uint16(p.ContainerPort), Protocol: string(p.Protocol)})
	}
	s, err := echo.Start(w.pod.Name, ports, w.sandbox.host.Do)
	if err != nil {
		return nil, err
	}
	return &echoProcess{server: s, started: metav1.Now()}, nil
}

func (e *echoProcess) state() (corev1.ContainerState, int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended != nil {
		return terminated(0, e.started, *e.ended), 0
	}
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: e.started}}, 0
}

func (e *echoProcess) stop(ctx context.Context) {
	// Connections that outlast the grace period are cut, as in Kubernetes.
	if err := e.server.Drain(ctx, quiet); err != nil && !errors.Is(err, context.Canceled) {
		slog.Error("echo server not drained", "err", err)
	}
}

func (e *echoProcess) kill() error {
	e.mu.Lock()
	if e.ended == nil {
		now := metav1.Now()
		e.ended = &now
	}
	e.mu.Unlock()
	return e.server.Close()
}

func terminated(code int, started, ended metav1.Time) corev1.ContainerState {
	t := &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: "Completed", StartedAt: started, FinishedAt: ended}
	if code != 0 {
		t.Reason = "Error"
	}
	return corev1.ContainerState{Terminated: t}
}
