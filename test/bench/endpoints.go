package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// endpoints answer at every address of their host.
type endpoints struct {
	hello    int // listening socket
	stream   net.Listener
	sink     net.PacketConn
	packets  atomic.Int64 // that reached sink
	closed   atomic.Bool
	finished sync.WaitGroup
}

func newEndpoints(h *topology.Host) (*endpoints, error) {
	e := &endpoints{hello: -1}
	err := h.Do(func() (err error) {
		if e.hello, err = listenHello(); err != nil {
			return err
		}
		if e.stream, err = net.Listen("tcp4", fmt.Sprintf(":%d", streamPort)); err != nil {
			return err
		}
		e.sink, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", sinkPort))
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", h.Name, err), e.close())
	}
	for range 2 {
		e.finished.Go(e.serveHello)
	}
	e.finished.Go(e.serveStream)
	e.finished.Go(e.serveSink)
	return e, nil
}

func listenHello() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: helloPort}),
		unix.Listen(fd, 4096)); err != nil {
		return -1, errors.Join(os.NewSyscallError("listen", err), unix.Close(fd))
	}
	return fd, nil
}

// serveHello says to each who connects which address was reached. Plain system
// calls: the figures are to be the kernel's, as far as possible.
func (e *endpoints) serveHello() {
	for {
		fd, _, err := unix.Accept4(e.hello, unix.SOCK_CLOEXEC)
		if e.closed.Load() {
			if err == nil {
				_ = unix.Close(fd) // nobody is there any more
			}
			return
		}
		if err != nil {
			continue // the client went away
		}
		if own, err := unix.Getsockname(fd); err == nil {
			a := own.(*unix.SockaddrInet4).Addr
			_, _ = unix.Write(fd, a[:]) // a client that went away reports it itself
		}
		_ = unix.Close(fd)
	}
}

func (e *endpoints) serveStream() {
	for {
		c, err := e.stream.Accept()
		if err != nil {
			return
		}
		e.finished.Go(func() {
			defer c.Close()
			buffer := make([]byte, 1<<18)
			for {
				if _, err := c.Read(buffer); errors.Is(err, io.EOF) || err != nil {
					return
				}
			}
		})
	}
}

func (e *endpoints) serveSink() {
	buffer := make([]byte, 2048)
	for {
		if _, _, err := e.sink.ReadFrom(buffer); err != nil {
			return
		}
		e.packets.Add(1)
	}
}

func (e *endpoints) close() error {
	e.closed.Store(true)
	var errs []error
	if e.hello >= 0 {
		errs = append(errs, unix.Shutdown(e.hello, unix.SHUT_RDWR))
	}
	if e.stream != nil {
		errs = append(errs, e.stream.Close())
	}
	if e.sink != nil {
		errs = append(errs, e.sink.Close())
	}
	e.finished.Wait()
	if e.hello >= 0 {
		errs = append(errs, unix.Close(e.hello))
	}
	return errors.Join(errs...)
}
