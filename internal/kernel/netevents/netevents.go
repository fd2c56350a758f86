// Package netevents tells of changes to the interfaces, addresses and routes of a
// network namespace (rtnetlink's multicast groups, linux/rtnetlink.h).
//
// The kernel drops messages when a burst doesn't fit into the socket's buffer, and
// says so once (ENOBUFS). A Watch survives that: it lets the burst pass, and then
// says that anything may have changed.
package netevents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bufferSize has room for the messages of some thousand changes at once. The
// kernel takes that much memory only while messages wait.
const bufferSize = 4 << 20

// After a loss, the burst is over when nothing came for quiet. It is taken for
// over after mostBurst, so that endless changes are looked at all the same.
const (
	quiet     = 100 * time.Millisecond
	mostBurst = 2 * time.Second
)

// Handler is told of changes, by one goroutine.
type Handler struct {
	// Message gets each message of the kernel (linux/rtnetlink.h).
	Message func(syscall.NetlinkMessage)
	// Lost says that messages were lost: all is to be looked at anew.
	Lost func()
}

// Watch is a subscription.
type Watch struct{ socket *nl.NetlinkSocket }

// Open subscribes to groups (unix.RTNLGRP_…) of the calling thread's network
// namespace. What changes from now on is told by Run.
func Open(groups ...uint) (*Watch, error) { return open(unix.NETLINK_ROUTE, groups) }

// OpenNetfilter is Open for netfilter's groups (NFNLGRP_…).
func OpenNetfilter(groups ...uint) (*Watch, error) { return open(unix.NETLINK_NETFILTER, groups) }

func open(protocol int, groups []uint) (*Watch, error) {
	s, err := nl.Subscribe(protocol, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of the network: %w", err)
	}
	if s.SetReceiveBufferSize(bufferSize, true) != nil { // takes CAP_NET_ADMIN of the machine
		if err := s.SetReceiveBufferSize(bufferSize, false); err != nil { // up to net.core.rmem_max
			s.Close()
			return nil, fmt.Errorf("subscribe to changes of the network: enlarge buffer: %w", err)
		}
	}
	return &Watch{s}, nil
}

// Run tells of changes until ctx is done, and then closes the subscription. An
// error says that the kernel tells nothing any more.
func (w *Watch) Run(ctx context.Context, h Handler) error {
	stop := context.AfterFunc(ctx, w.socket.Close)
	defer func() {
		if stop() {
			w.socket.Close()
		}
	}()
	for {
		messages, err := w.receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			for _, m := range messages {
				h.Message(m)
			}
		case errors.Is(err, unix.ENOBUFS):
			if err := w.passBurst(ctx); err != nil {
				return err
			}
			if ctx.Err() == nil {
				h.Lost()
			}
		default:
			return fmt.Errorf("receive changes of the network: %w", err)
		}
	}
}

// receive gives the kernel's next messages; none for those of other processes.
func (w *Watch) receive() ([]syscall.NetlinkMessage, error) {
	messages, from, err := w.socket.Receive()
	switch {
	case errors.Is(err, unix.EINTR):
		return nil, nil
	case err != nil:
		return nil, err
	case from.Pid != nl.PidKernel:
		return nil, nil
	}
	return messages, nil
}

// passBurst receives and forgets until the burst is over.
func (w *Watch) passBurst(ctx context.Context) error {
	if err := w.setTimeout(quiet); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < mostBurst && ctx.Err() == nil; {
		_, err := w.receive()
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("receive changes of the network: %w", err)
		}
	}
	return w.setTimeout(0)
}

func (w *Watch) setTimeout(d time.Duration) error {
	timeout := unix.NsecToTimeval(d.Nanoseconds())
	if err := w.socket.SetReceiveTimeout(&timeout); err != nil {
		return fmt.Errorf("receive changes of the network: %w", err)
	}
	return nil
}
