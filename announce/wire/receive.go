package wire

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Receive hands on frames until the socket is closed. Each one is read and taken with the lock
// held: whoever has the lock and finds nothing Unread has taken all that came. An interface that
// is down may come up again.
func Receive(c syscall.Conn, lock sync.Locker, take func(frame []byte)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	buffer := make([]byte, 9216)
	for {
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			lock.Lock()
			defer lock.Unlock()
			var n int
			if n, _, failed = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT); failed == nil {
				take(buffer[:n])
			}
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return nil // sockets without deadlines are waited for until they are closed
		case failed != nil && !errors.Is(failed, unix.ENETDOWN) && !errors.Is(failed, unix.EINTR):
			return fmt.Errorf("receive: %w", failed)
		}
	}
}
