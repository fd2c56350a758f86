package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// console is what a run of a command reads, and, with a terminal, also writes:
// nothing for containers without stdin and tty.
type console struct {
	input    *os.File // the writing end of a pipe, or the terminal's master; nil if there is none
	theirs   *os.File // the command's own end, until it has it
	terminal bool
	over     chan struct{} // closed when the run has ended
	copied   sync.WaitGroup
}

// openConsole gives a command that isn't started its standard input, and its
// terminal, where asked.
func openConsole(cmd *exec.Cmd, stdin, tty bool) (*console, error) {
	c := &console{terminal: tty, over: make(chan struct{})}
	var err error
	switch {
	case tty:
		if c.input, c.theirs, err = pty.Open(); err != nil {
			return nil, fmt.Errorf("open a terminal: %w", err)
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = c.theirs, c.theirs, c.theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setctty: true}
		cmd.Env = append(cmd.Env, "TERM=xterm")
	case stdin:
		if c.theirs, c.input, err = os.Pipe(); err != nil {
			return nil, fmt.Errorf("open standard input: %w", err)
		}
		cmd.Stdin = c.theirs
	}
	return c, nil
}

// begun takes in that the command runs; what it writes to its terminal goes to
// out.
func (c *console) begun(out io.Writer) {
	if c.theirs != nil {
		_ = c.theirs.Close()
	}
	if c.terminal {
		c.copied.Go(func() { _, _ = io.Copy(out, c.input) }) // ends with EIO when nobody has the terminal
	}
}

// ended takes in that the run has ended. Children that have the terminal may
// write for a moment more.
func (c *console) ended() {
	if c.terminal {
		late := time.AfterFunc(lastWords, func() { _ = c.input.Close() })
		c.copied.Wait()
		late.Stop()
	}
	c.abandon()
	close(c.over)
}

// abandon closes what is open.
func (c *console) abandon() {
	for _, f := range []*os.File{c.input, c.theirs} {
		if f != nil {
			_ = f.Close() // it may be closed
		}
	}
}

// feed copies what a client types until it ends; with once, that is the end of
// the command's input.
func (c *console) feed(in io.Reader, once bool) {
	_, _ = io.Copy(c.input, in) // to an end, the client's or the command's
	if once && !c.terminal {
		_ = c.input.Close()
	}
}

// AttachContainer implements remotecommand.Attacher: it shows what the container
// writes from now on, until its present run ends, and passes on what is typed.
func (e executor) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	command, ok := e.of.process.(*command)
	if !ok || in != nil && !e.of.spec.Stdin {
		return fmt.Errorf("container %s has no standard input", e.of.spec.Name)
	}
	c := command.console()
	if c == nil {
		return errors.New("the container does not run")
	}
	size, _, _ := command.log.state()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	if c.terminal {
		go func() {
			for s := range resize {
				_ = pty.Setsize(c.input, &pty.Winsize{Cols: s.Width, Rows: s.Height}) // the terminal may be gone
			}
		}()
	}
	if in != nil {
		go c.feed(in, e.of.spec.StdinOnce)
	}
	if out == nil {
		<-ctx.Done()
		return nil
	}
	return copyFrom(ctx, out, command.log, size)
}
