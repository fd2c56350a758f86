package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Exec is a command that gets each state as one line of JSON on standard input,
// and may answer on standard output. Exit code 0 says that the state is in force.
type Exec struct {
	Command string // for sh -c
	Timeout time.Duration
}

// String implements Target.
func (e *Exec) String() string { return "command " + firstLine(e.Command) }

// Deliver implements Target.
func (e *Exec) Deliver(ctx context.Context, s *State) (*Answer, error) {
	input, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	out, err := run(ctx, e.Timeout, e.Command, append(input, '\n'), nil)
	if err != nil {
		return nil, err
	}
	return parseAnswer(out), nil
}

// run runs a command line and returns what it writes. When time is up it is
// killed, and its children too.
func run(ctx context.Context, timeout time.Duration, command string, input []byte, environment []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	c.Env = append(os.Environ(), environment...)
	out, stderr := &limited{most: maxAnswer}, &limited{most: 4096}
	c.Stdin, c.Stdout, c.Stderr = io.Reader(bytes.NewReader(input)), out, stderr
	err := c.Run()
	switch {
	case err == nil:
		return out.data, nil
	case errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil:
		return out.data, nil // it has left something running that holds its output
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, said(fmt.Errorf("no end after %s: killed", timeout), stderr.data)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, said(err, stderr.data)
}
