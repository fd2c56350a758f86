package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// executor runs commands as in a container.
type executor struct {
	in *sandbox
	of *container
}

// ExecInContainer implements remotecommand.Executor.
func (e executor) ExecInContainer(ctx context.Context, _, _, _ string, argv []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("no command was given")
	}
	w := e.of.worker
	cmd, err := w.command(e.in, e.of.spec, func([]corev1.EnvVar) []string { return argv })
	if err != nil {
		return err
	}
	run := e.plainly
	if tty {
		run = e.onTerminal
	}
	return exitError(run(ctx, cmd, in, out, errOut, resize))
}

// exitError is how a command ended, as remotecommand.ServeExec wants to have it.
func exitError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return utilexec.CodeExitError{Err: exit, Code: code}
}

func (e executor) start(ctx context.Context, cmd *exec.Cmd) (stop func() bool, err error) {
	if err := e.of.worker.startCommand(e.in, e.of.spec, cmd); err != nil {
		return nil, err
	}
	return context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }), nil // it may have ended
}

// plainly runs a command with pipes.
func (e executor) plainly(ctx context.Context, cmd *exec.Cmd, in io.Reader, out, errOut io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
	if out != nil {
		cmd.Stdout = out
	}
	if errOut != nil {
		cmd.Stderr = errOut
	}
	var stdin io.WriteCloser
	if in != nil {
		var err error
		// Not cmd.Stdin: Wait would wait for what the client never sends.
		if stdin, err = cmd.StdinPipe(); err != nil {
			return err
		}
	}
	stop, err := e.start(ctx, cmd)
	if err != nil {
		return err
	}
	defer stop()
	if stdin != nil {
		go func() {
			_, _ = io.Copy(stdin, in) // to an end, the command's or the client's
			_ = stdin.Close()
		}()
	}
	return cmd.Wait()
}

// onTerminal runs a command on a terminal of its own.
func (e executor) onTerminal(ctx context.Context, cmd *exec.Cmd, in io.Reader, out, _ io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
	master, slave, err := pty.Open()
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	defer master.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setctty: true}
	cmd.Env = append(cmd.Env, "TERM=xterm")
	stop, err := e.start(ctx, cmd)
	if err := errors.Join(err, slave.Close()); err != nil {
		return err
	}
	defer stop()
	go func() {
		for size := range resize {
			_ = pty.Setsize(master, &pty.Winsize{Cols: size.Width, Rows: size.Height}) // the terminal may be gone
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(master, in) }() // until either ends
	}
	var copied sync.WaitGroup
	if out != nil {
		copied.Go(func() { _, _ = io.Copy(out, master) }) // ends with EIO when the command has ended
	}
	err = cmd.Wait()
	copied.Wait()
	return err
}
