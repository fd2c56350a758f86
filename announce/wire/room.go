package wire

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Room are the bytes that messages may take up before they are read: what four nodes say of
// ten thousand addresses at once.
const Room = 4 << 20

// MakeRoom has a socket keep as many bytes that aren't read yet. Without CAP_NET_ADMIN it is
// net.core.rmem_max at most.
func MakeRoom(c syscall.Conn, bytes int) error {
	return Control(c, func(fd int) error {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes) == nil {
			return nil
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
	})
}

// Control calls with the number of a socket, which stays open meanwhile.
func Control(c syscall.Conn, call func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = call(int(fd)) })
	return errors.Join(err, failed)
}
