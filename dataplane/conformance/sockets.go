package conformance

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

// SocketsEnv tells the test binary to be the process that makes the sockets of
// the node under test and its pods.
const SocketsEnv = "FAIRWAY_CONFORMANCE_SOCKETS"

// socketFd is that process's end of the line.
const socketFd = 3

// socketRequest asks for a socket.
type socketRequest struct {
	Namespace           string
	Family, Kind, Proto int
}

// ServeSockets makes sockets and passes them on until nobody asks any more. The
// process must live in the node's cgroup.
func ServeSockets() error {
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(socketFd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read request for a socket: %w", err)
		}
		if n == 0 {
			return nil
		}
		if err := serveSocket(buf[:n]); err != nil {
			return err
		}
	}
}

func serveSocket(text []byte) error {
	var r socketRequest
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("read request for a socket: %w", err)
	}
	fd, err := r.open()
	if err != nil {
		return unix.Send(socketFd, []byte(err.Error()), 0)
	}
	defer unix.Close(fd)
	return unix.Sendmsg(socketFd, []byte("ok"), unix.UnixRights(fd), nil, 0)
}

func (r socketRequest) open() (fd int, err error) {
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

// sockets is the stage's end of the line.
type sockets struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	fd  int
}

// startSockets starts the process in the cgroup of a directory.
func startSockets(cgroup string) (*sockets, error) {
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
	cmd.Env = append(os.Environ(), SocketsEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the maker of sockets: %w", err), unix.Close(pair[0]))
	}
	return &sockets{cmd: cmd, fd: pair[0]}, nil
}

// make asks for a socket in a namespace.
func (s *sockets) make(namespace string, family, kind, proto int) (int, error) {
	request, err := json.Marshal(socketRequest{namespace, family, kind, proto})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := unix.Send(s.fd, request, 0); err != nil {
		return 0, fmt.Errorf("ask for a socket: %w", err)
	}
	text, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, nrights, _, _, err := unix.Recvmsg(s.fd, text, rights, unix.MSG_CMSG_CLOEXEC)
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

// close ends the process.
func (s *sockets) close() error {
	if err := unix.Close(s.fd); err != nil {
		return fmt.Errorf("end the maker of sockets: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("end the maker of sockets: %w", err)
	}
	return nil
}
