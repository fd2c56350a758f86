package ebpf

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

// manner is how servers serve.
type manner struct {
	proto model.Protocol
	kind  int
	talk  func(fd int) // until the socket is shut down
}

var (
	oneByOne = manner{model.TCP, unix.SOCK_STREAM, func(listener int) { accept(listener, echoStream) }}
	// allAtOnce has a thread for each connection, which takes a while to begin.
	allAtOnce = manner{model.TCP, unix.SOCK_STREAM, func(listener int) {
		accept(listener, func(fd int) {
			go func() {
				if onOneProcessor() == nil {
					echoStream(fd)
				}
			}()
		})
	}}
	datagrams = manner{model.UDP, unix.SOCK_DGRAM, echoDatagrams}
)

// listen serves a port of a pod until the benchmark ends: on threads of its own,
// without a poller.
func listen(b *testing.B, pod *topology.Host, serve manner, port int) {
	b.Helper()
	var fd int
	check(b, pod.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, serve.kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open socket: %w", err)
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
			return fmt.Errorf("bind to port %d: %w", port, err)
		}
		if serve.proto == model.UDP {
			return nil
		}
		return unix.Listen(fd, 128)
	}))
	done := make(chan error)
	go func() {
		err := onOneProcessor() // the thread ends with this goroutine
		if err == nil {
			serve.talk(fd)
		}
		done <- err
	}()
	b.Cleanup(func() {
		err := unix.Shutdown(fd, unix.SHUT_RDWR)
		if !errors.Is(err, unix.ENOTCONN) { // it wakes who waits all the same
			check(b, err)
		}
		check(b, errors.Join(<-done, unix.Close(fd)))
	})
}

func accept(listener int, serve func(fd int)) {
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			return // shut down
		}
		serve(fd)
	}
}

func echoStream(fd int) {
	defer unix.Close(fd)
	buffer := make([]byte, 64)
	for {
		n, err := unix.Read(fd, buffer)
		if err != nil || n == 0 {
			return // the client has closed
		}
		if _, err := unix.Write(fd, buffer[:n]); err != nil {
			return
		}
	}
}

func echoDatagrams(fd int) {
	buffer := make([]byte, 64)
	for {
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil || n == 0 {
			return // shut down
		}
		if err := unix.Sendto(fd, buffer[:n], 0, from); err != nil {
			return
		}
	}
}
