package cgroupsock

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Control is for net.Dialer.Control: it puts a socket of the cgroup, in a network
// namespace, in the place of the one that the dialer has just made.
func (m *Maker) Control(namespace string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = m.replace(namespace, int(fd)) })
		return errors.Join(err, failed)
	}
}

func (m *Maker) replace(namespace string, fd int) error {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("read a socket's family: %w", err)
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return fmt.Errorf("read a socket's type: %w", err)
	}
	made, err := m.Make(namespace, family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(made)
	if err := unix.Dup3(made, fd, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("replace a socket: %w", err)
	}
	return nil
}
