package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// line is a connection to the machine over which it takes one command after
// another: a virtio port there, a socket here.
type line struct {
	host *os.File // our end
	qemu *os.File // the one that qemu inherits
	text *bufio.Reader
}

func newLine() (*line, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a line to the virtual machine: %w", err)
	}
	// So that reading has deadlines.
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, fmt.Errorf("make a line to the virtual machine: %w", err)
	}
	l := &line{host: os.NewFile(uintptr(ends[0]), "line"), qemu: os.NewFile(uintptr(ends[1]), "line of qemu")}
	l.text = bufio.NewReader(l.host)
	return l, nil
}

// ready waits until the machine takes commands.
func (l *line) ready() error {
	for {
		text, err := l.text.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.TrimSpace(text) == "::ready::" {
			return nil
		}
	}
}

// run has the machine's shell run a command, passes its output on, and returns
// its exit code. The error is an os.ErrDeadlineExceeded if the command writes
// nothing for as long as timeout says, unless that is 0.
func (l *line) run(command string, out io.Writer, timeout time.Duration) (int, error) {
	if _, err := io.WriteString(l.host, command+"\n"); err != nil {
		return 0, fmt.Errorf("send the command: %w", err)
	}
	for {
		var deadline time.Time
		if timeout > 0 {
			deadline = time.Now().Add(timeout)
		}
		if err := l.host.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		text, err := l.text.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		if err != nil {
			return 0, fmt.Errorf("the virtual machine ended: %w", err)
		}
		if rest, ok := strings.CutPrefix(text, "::exit "); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), "::"))
		}
		if _, err := io.WriteString(out, text); err != nil {
			return 0, fmt.Errorf("pass on the output: %w", err)
		}
	}
}

// inherited is given up once qemu has it, so that its end is noticed here.
func (l *line) inherited() error {
	err := l.qemu.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (l *line) close() error { return errors.Join(l.inherited(), l.host.Close()) }
