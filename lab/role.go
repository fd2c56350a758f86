package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/lab/topology"
)

// role is a process of the lab that is kept running: this program in another
// role, or another program, in a cgroup of its own.
type role struct {
	lab     string
	name    string                // names the log
	cgroup  string                // below the lab's
	program string                // this one if it is ""
	start   func(*exec.Cmd) error // puts it into its namespace
	args    func() []string       // may differ from start to start
}

// run keeps the process running until the context ends. It returns early if the
// process ends before settled says that it was of use.
func (r *role) run(ctx context.Context, settled func() bool) error {
	for {
		began := time.Now()
		err := r.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !settled() {
			return fmt.Errorf("%s did not come up: %w", r.name, err)
		}
		slog.Warn("a process ended; starting it again", "name", r.name, "error", err)
		if time.Since(began) < time.Second { // don't spin
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// once runs the process to its end, which comes with the context's.
func (r *role) once(ctx context.Context) error {
	executable := r.program
	if executable == "" {
		var err error
		if executable, err = os.Executable(); err != nil {
			return fmt.Errorf("find the own executable: %w", err)
		}
	}
	logPath := filepath.Join(Dir(r.lab), r.name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, executable, r.args()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	leave, err := r.joinCgroup(cmd.SysProcAttr)
	if err != nil {
		return err
	}
	err = r.start(cmd)
	if leaveErr := leave(); err == nil {
		err = leaveErr
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", r.name, err)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("it ended (%v): %s", endOf(err), lastLine(logPath))
}

// joinCgroup makes the process start in its cgroup, where there are any.
func (r *role) joinCgroup(attr *syscall.SysProcAttr) (done func() error, err error) {
	path, err := topology.Cgroup(r.lab, r.cgroup)
	if errors.Is(err, cgroup.ErrNone) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return dir.Close, nil
}

func endOf(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
