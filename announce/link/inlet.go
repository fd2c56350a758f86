package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Inlet is a socket that one goroutine reads.
type Inlet struct {
	socket syscall.Conn
	busy   atomic.Bool // from before a frame leaves the socket until it is handled
}

// NewInlet returns the inlet of a socket.
func NewInlet(socket syscall.Conn) *Inlet { return &Inlet{socket: socket} }

// IsBehind reports whether frames came that aren't taken yet. It is to be called with the lock
// held with which frames are taken.
func (i *Inlet) IsBehind() bool {
	waits := false
	err := control(i.socket, func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = n > 0
		return err
	})
	// In this order: a frame that left the socket since is one that makes the reader busy.
	return err == nil && waits || i.busy.Load()
}

// Receive hands on frames until the socket is closed. Each one is taken with the lock held.
func (i *Inlet) Receive(lock sync.Locker, take func(frame []byte)) error {
	return i.receive(func(frame []byte) {
		lock.Lock()
		defer lock.Unlock()
		take(frame)
	})
}

// receive hands on frames. An interface that is down may come up again.
func (i *Inlet) receive(handle func(frame []byte)) error {
	raw, err := i.socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	buffer := make([]byte, 9216)
	for {
		var failed error
		var n int
		err := raw.Read(func(fd uintptr) bool {
			i.busy.Store(true)
			n, _, failed = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
			if errors.Is(failed, unix.EAGAIN) {
				i.busy.Store(false)
				return false
			}
			return true
		})
		if err == nil && failed == nil {
			handle(buffer[:n])
		}
		i.busy.Store(false)
		switch {
		case err != nil:
			return nil // sockets without deadlines are waited for until they are closed
		case failed != nil && !errors.Is(failed, unix.ENETDOWN) && !errors.Is(failed, unix.EINTR):
			return fmt.Errorf("receive: %w", failed)
		}
	}
}
