package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
)

// process is the measured program in one of its roles, or kube-proxy, in a host
// and a cgroup of its own.
type process struct {
	name    string
	log     string
	cmd     *exec.Cmd
	usage   *usage
	ended   chan struct{}
	err     error // how it ended, once ended is closed
	stopped bool
}

// cgroupOf is the cgroup of a process: the agent is on the node.
func cgroupOf(name string) string {
	if name == "agent" {
		return "node1/agent"
	}
	return name
}

// start starts a program inside a host and the cgroup of its name.
func start(h *topology.Host, name, dir string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{}), cmd: cmd}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of %s: %w", name, err)
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer log.Close()
	if p.usage, err = newUsage(cgroupOf(name)); err != nil {
		return nil, err
	}
	group, err := os.Open(p.usage.dir)
	if err != nil {
		return nil, fmt.Errorf("open cgroup of %s: %w", name, err)
	}
	defer group.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := h.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.ended) }()
	return p, nil
}

// alive says whether, and if not why, the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %w (log: %s)", p.name, errors.Join(p.err, errors.New("too early")), tail(p.log))
	default:
		return nil
	}
}

func (p *process) stop() error {
	if p.stopped {
		return nil
	}
	p.stopped = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
	case <-time.After(startTimeout):
		return errors.Join(fmt.Errorf("%s doesn't end", p.name), p.cmd.Process.Kill())
	}
	if p.err != nil && !p.killed() {
		return fmt.Errorf("%s: %w (log: %s)", p.name, p.err, tail(p.log))
	}
	return nil
}

// killed reports whether it ended of the signal that it was sent, as kube-proxy
// does.
func (p *process) killed() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// tail is the end of a log.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-600):])
}

// permanent is an error after which polling is no use.
type permanent struct{ error }

// poll tries until it succeeds.
func poll(ctx context.Context, waitTimeout, pause time.Duration, try func() error) error {
	deadline := time.Now().Add(waitTimeout)
	for {
		err := try()
		var final permanent
		if err == nil || errors.As(err, &final) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
