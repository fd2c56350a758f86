package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// workers are threads inside a host, ready to connect from it.
type workers struct {
	jobs    chan func()
	members sync.WaitGroup
}

func newWorkers(h *topology.Host, n int) (*workers, error) {
	c := &workers{jobs: make(chan func())}
	entered := make(chan error, n)
	for range n {
		c.members.Go(func() {
			err := h.Do(func() error {
				restore, err := undisturbed()
				if err != nil {
					return err
				}
				defer restore()
				entered <- nil
				for job := range c.jobs {
					job()
				}
				return nil
			})
			if err != nil {
				entered <- err
			}
		})
	}
	var errs []error
	for range n {
		errs = append(errs, <-entered)
	}
	return c, errors.Join(errs...)
}

// undisturbed keeps the runtime's preemption signals from the calling thread,
// which would end system calls that have a time limit.
func undisturbed() (restore func(), err error) {
	var block, before unix.Sigset_t
	block.Val[(unix.SIGURG-1)/64] = 1 << ((unix.SIGURG - 1) % 64)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before); err != nil {
		return nil, os.NewSyscallError("pthread_sigmask", err)
	}
	return func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }, nil // with a mask that was valid
}

func (c *workers) close() error {
	close(c.jobs)
	c.members.Wait()
	return nil
}

// do runs a job on a thread of the workers and waits for it.
func (c *workers) do(job func()) {
	done := make(chan struct{})
	c.jobs <- func() { defer close(done); job() }
	<-done
}

// connectTimeout is how long one connection may take: less than the second
// after which TCP tries again, so that a lost packet shows.
const connectTimeout = 900 * time.Millisecond

// connect makes one connection from the calling thread's host and returns the
// endpoint that it reached.
func connect(to netip.AddrPort) (netip.Addr, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.Addr{}, os.NewSyscallError("socket", err)
	}
	reached, err := hello(fd, to)
	return reached, errors.Join(err, unix.Close(fd))
}

func hello(fd int, to netip.AddrPort) (netip.Addr, error) {
	waitTimeout := unix.NsecToTimeval(connectTimeout.Nanoseconds())
	// Closing resets: no port is lost to TIME_WAIT.
	if err := errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &waitTimeout),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &waitTimeout)); err != nil {
		return netip.Addr{}, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return netip.Addr{}, os.NewSyscallError("connect", err)
	}
	var answer [4]byte
	n, err := unix.Read(fd, answer[:])
	if err != nil {
		return netip.Addr{}, os.NewSyscallError("read", err)
	}
	if n != len(answer) {
		return netip.Addr{}, fmt.Errorf("%d bytes of answer from %s", n, to)
	}
	return netip.AddrFrom4(answer), nil
}

// reachTimeout is how long a change may take to be in force.
const reachTimeout = 2 * time.Minute

// reach connects until a connection reaches what is wanted, and returns when
// that began. The calling thread must be of the workers.
func reach(ctx context.Context, vip netip.AddrPort, wanted func(netip.Addr) bool) (time.Time, error) {
	var last error
	deadline := time.Now().Add(reachTimeout)
	for {
		at, err := connect(vip)
		now := time.Now()
		switch {
		case err == nil && wanted(at):
			return now, nil
		case ctx.Err() != nil:
			return now, ctx.Err()
		case now.After(deadline):
			return now, errors.Join(fmt.Errorf("%s leads to %v after %s", vip, at, reachTimeout), err, last)
		}
		last = err
		pause := unix.NsecToTimespec(pollPause.Nanoseconds())
		if err := unix.Nanosleep(&pause, nil); err != nil && !errors.Is(err, unix.EINTR) { // woken early is no harm
			return now, os.NewSyscallError("nanosleep", err)
		}
	}
}

// pollPause leaves the processor to others between attempts.
const pollPause = 100 * time.Microsecond
