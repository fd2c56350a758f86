package check

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// askCommand runs a command; exit code 0 is good. What is still there of it at
// the deadline is killed, its children too.
func askCommand(ctx context.Context, s *Spec, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	command := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("run %s: %w", s.Command[0], ctx.Err())
	case errors.As(err, &exit):
		return unexpectedError(fmt.Sprintf("exit code %d", exit.ExitCode()))
	}
	return unexpectedError(err.Error())
}
