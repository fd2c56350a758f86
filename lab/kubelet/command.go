package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longestBackoff is the longest pause before a container is started again, and
// backoffReset after how long a run the pauses begin anew.
const (
	longestBackoff = 5 * time.Minute
	backoffReset   = 10 * time.Minute
)

// lastWords is how long children of a command that has ended may still write.
const lastWords = time.Second

var errEnded = errors.New("the container has been stopped")

// command is a container's own command, run from the host's file system inside
// the pod's network namespace, and started again as restartPolicy says.
type command struct {
	worker  *worker
	sandbox *sandbox
	spec    *corev1.Container
	policy  corev1.RestartPolicy
	again   func() // it has been started again
	log     *output
	done    chan struct{} // closed when it has ended for good
	ending  chan struct{} // closed when it shall end

	mu       sync.Mutex
	ended    bool // ending is closed
	cmd      *exec.Cmd
	at       *console // of cmd
	current  corev1.ContainerState
	last     corev1.ContainerState // how it ended before
	restarts int32
}

func startCommand(w *worker, spec *corev1.Container, policy corev1.RestartPolicy, again func()) (*command, error) {
	c := &command{
		worker: w, sandbox: w.sandbox, spec: spec, policy: policy, again: again,
		done: make(chan struct{}), ending: make(chan struct{}),
	}
	name := fmt.Sprintf("%s_%s_%s.log", w.pod.Namespace, w.pod.Name, spec.Name)
	var err error
	if c.log, err = openOutput(filepath.Join(w.kubelet.logs, name)); err != nil {
		return nil, err
	}
	cmd, err := c.start()
	if err != nil {
		return nil, errors.Join(err, c.log.Close())
	}
	go c.supervise(cmd)
	return c, nil
}

// start starts the command once.
func (c *command) start() (*exec.Cmd, error) {
	if err := c.worker.writeVolumes(context.Background(), c.spec); err != nil {
		return nil, err
	}
	cmd, err := c.worker.command(c.sandbox, c.spec, func(env []corev1.EnvVar) []string {
		return expand(c.worker.kubelet.argv(c.spec), env)
	})
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.log, c.log, lastWords
	console, err := openConsole(cmd, c.spec.Stdin, c.spec.TTY)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		console.abandon()
		return nil, errEnded
	}
	c.log.begin()
	if err := c.worker.startCommand(c.sandbox, c.spec, cmd); err != nil {
		console.abandon()
		return nil, err
	}
	console.begun(c.log)
	c.cmd, c.at = cmd, console
	c.current = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	c.worker.notify()
	return cmd, nil
}

// supervise waits for the command and starts it again, later each time.
func (c *command) supervise(cmd *exec.Cmd) {
	defer close(c.done)
	backoff := time.Second
	for {
		code := exitCode(cmd.Wait(), cmd)
		c.console().ended()
		c.mu.Lock()
		if time.Since(c.current.Running.StartedAt.Time) >= backoffReset {
			backoff = time.Second
		}
		c.current = terminated(code, c.current.Running.StartedAt, metav1.Now())
		c.last = c.current
		if restarts(c.policy, int32(code)) && backoff > time.Second {
			c.current = backingOff(backoff, c.spec.Name, c.worker.first)
		}
		c.mu.Unlock()
		c.worker.notify()
		if !restarts(c.policy, int32(code)) {
			return
		}
		for cmd = nil; cmd == nil; backoff = min(2*backoff, longestBackoff) {
			select {
			case <-c.ending:
				return
			case <-time.After(backoff):
			}
			var err error
			if cmd, err = c.start(); err != nil && !errors.Is(err, errEnded) {
				c.worker.kubelet.events.Eventf(c.worker.first, corev1.EventTypeWarning, "Failed", "Error starting container %s: %v", c.spec.Name, err)
			}
		}
		c.mu.Lock()
		c.restarts++
		c.mu.Unlock()
		c.again()
	}
}

// backingOff is the state of a container that ended again, and isn't started yet.
func backingOff(pause time.Duration, name string, pod *corev1.Pod) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason:  "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=%s_%s(%s)", pause, name, pod.Name, pod.Namespace, pod.UID),
	}}
}

func exitCode(err error, cmd *exec.Cmd) int {
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	if err != nil && cmd.ProcessState.ExitCode() == 0 && !errors.Is(err, exec.ErrWaitDelay) {
		slog.Error("a container's command could not be waited for", "error", err)
	}
	return cmd.ProcessState.ExitCode()
}

// console is that of the last run.
func (c *command) console() *console {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// lastState is how the command ended before its present run; nothing in its first.
func (c *command) lastState() corev1.ContainerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Terminated != nil && c.last.Terminated != nil && c.current.Terminated.StartedAt == c.last.Terminated.StartedAt {
		return corev1.ContainerState{}
	}
	return c.last
}

func (c *command) state() (corev1.ContainerState, int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.restarts
}

// stop asks with SIGTERM and waits.
func (c *command) stop(ctx context.Context) {
	if err := c.end(syscall.SIGTERM); err != nil {
		slog.Error("a container could not be signalled", "error", err)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
}

func (c *command) kill() error {
	err := c.end(syscall.SIGKILL)
	<-c.done
	return errors.Join(err, c.log.Close())
}

// restart signals it; supervise starts it again.
func (c *command) restart(grace time.Duration) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd := c.cmd
	if c.ended || c.current.Running == nil {
		return false, nil
	}
	time.AfterFunc(grace, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cmd == cmd && c.current.Running != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may be ending just now
		}
	})
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("signal the container: %w", err)
	}
	return false, nil
}

// environment is what the command found when it was started last.
func (c *command) environment() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cmd.Env
}

// end keeps the command from being started again and, if it runs, sends a signal
// to it and its children: to its session's process group.
func (c *command) end(s syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended = true
		close(c.ending)
	}
	if c.current.Running == nil {
		return nil
	}
	err := syscall.Kill(-c.cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
