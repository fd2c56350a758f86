// Package cgroupsock makes sockets that belong to a network namespace and to a
// cgroup, whoever uses them afterwards: it is where a socket was made that
// decides which eBPF programs of a cgroup see it.
package cgroupsock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

// env tells a program that calls Main to make the sockets.
const env = "FAIRWAY_SOCKETS"

// lineFd is that process's end of the line.
const lineFd = 3

// request asks for a socket.
type request struct {
	Namespace           string
	Family, Kind, Proto int
}

// Main makes sockets, and never returns, if this process was started for that by
// Start; else it does nothing. A program that uses Start begins with it.
func Main() {
	if os.Getenv(env) == "" {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve makes sockets and passes them on until nobody asks any more.
func serve() error {
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(lineFd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read request for a socket: %w", err)
		}
		if n == 0 {
			return nil
		}
		if err := answer(buf[:n]); err != nil {
			return err
		}
	}
}

func answer(text []byte) error {
	var r request
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("read request for a socket: %w", err)
	}
	fd, err := r.open()
	if err != nil {
		return unix.Send(lineFd, []byte(err.Error()), 0)
	}
	defer unix.Close(fd)
	return unix.Sendmsg(lineFd, []byte("ok"), unix.UnixRights(fd), nil, 0)
}

func (r request) open() (fd int, err error) {
	ns, err := netns.Open(r.Namespace)
	if err != nil {
		return 0, err
	}
	err = ns.Do(func() error {
		fd, err = unix.Socket(r.Family, r.Kind, r.Proto)
		return os.NewSyscallError("socket", err)
	})
	return fd, errors.Join(err, ns.Close())
}

// Maker makes sockets of one cgroup. Its methods may be called concurrently.
type Maker struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	fd  int
}

// Start starts a process in the cgroup of a directory, which makes its sockets.
func Start(cgroup string) (*Maker, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the maker of sockets: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "sockets")
	defer theirs.Close()
	dir, err := os.Open(cgroup)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the maker of sockets: %w", err), unix.Close(pair[0]))
	}
	defer dir.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the maker of sockets: %w", err), unix.Close(pair[0]))
	}
	return &Maker{cmd: cmd, fd: pair[0]}, nil
}

// Make makes a socket in a network namespace (see socket(2) for the rest) and
// returns its descriptor, which is closed on exec.
func (m *Maker) Make(namespace string, family, kind, proto int) (int, error) {
	question, err := json.Marshal(request{namespace, family, kind, proto})
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := unix.Send(m.fd, question, 0); err != nil {
		return 0, fmt.Errorf("ask for a socket: %w", err)
	}
	text, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, nrights, _, _, err := unix.Recvmsg(m.fd, text, rights, unix.MSG_CMSG_CLOEXEC)
	switch {
	case err != nil:
		return 0, fmt.Errorf("receive a socket: %w", err)
	case n == 0:
		return 0, fmt.Errorf("receive a socket: %w", io.ErrUnexpectedEOF)
	case nrights == 0:
		return 0, errors.New(string(text[:n]))
	}
	messages, err := unix.ParseSocketControlMessage(rights[:nrights])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("receive a socket: %d control messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, fmt.Errorf("receive a socket: %d descriptors: %w", len(fds), err)
	}
	return fds[0], nil
}

// Pid is the process that makes the sockets.
func (m *Maker) Pid() int { return m.cmd.Process.Pid }

// Close ends the process. Its sockets go on.
func (m *Maker) Close() error {
	if err := unix.Close(m.fd); err != nil {
		return fmt.Errorf("end the maker of sockets: %w", err)
	}
	if err := m.cmd.Wait(); err != nil {
		return fmt.Errorf("end the maker of sockets: %w", err)
	}
	return nil
}
