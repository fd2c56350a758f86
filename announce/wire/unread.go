package wire

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Unread reports whether a socket has something that is not read yet.
func Unread[C syscall.Conn](conns ...C) bool {
	for _, c := range conns {
		waits := false
		if err := Control(c, func(fd int) error {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			waits = n > 0
			return err
		}); err == nil && waits {
			return true
		}
	}
	return false
}
