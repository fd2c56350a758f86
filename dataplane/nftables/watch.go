package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// watch notices when somebody else changes the table.
type watch struct {
	socket *socket
	wake   int  // eventfd that ends the goroutine
	joined bool // messages come
	done   sync.WaitGroup
}

// startWatch makes ready to be told of changes to nf_tables, on a socket of its
// own. Listening begins when there is something to watch: see commitQuietly.
func (p *Plane) startWatch() error {
	if p.options.Drift == nil || p.watch != nil {
		return nil
	}
	s, err := openSocket()
	if err != nil {
		return err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return errors.Join(fmt.Errorf("open eventfd: %w", err), s.close())
	}
	w := &watch{socket: s, wake: wake}
	if err := s.passOver(p.socket.portid); err != nil {
		return errors.Join(fmt.Errorf("filter nf_tables changes: %w", err), s.close(), unix.Close(wake))
	}
	p.watch = w
	w.done.Go(func() { w.run(p.options.Drift) })
	return nil
}

// passOver filters out, in the kernel, the messages that follow from what the
// socket with this port id sends. The kernel puts the messages of one
// transaction into datagrams of their own (nft_commit_notify), so the first
// one's sender is that of all.
func (s *socket) passOver(except uint32) error {
	sender := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, except))
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12}, // nlmsghdr.nlmsg_pid
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: sender},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program)
}

// join begins to listen, leave ceases to.
func (w *watch) join() error  { return w.member(unix.NETLINK_ADD_MEMBERSHIP, true) }
func (w *watch) leave() error { return w.member(unix.NETLINK_DROP_MEMBERSHIP, false) }

func (w *watch) member(option int, joined bool) error {
	if w == nil || w.joined == joined {
		return nil
	}
	if err := unix.SetsockoptInt(w.socket.fd, unix.SOL_NETLINK, option, unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("change subscription to nf_tables changes: %w", err)
	}
	w.joined = joined
	return nil
}

// commitQuietly commits a batch that was made for this generation of nf_tables.
// If it is large, nobody listens meanwhile: to tell one listener of a new
// element takes the kernel twice as long as to add it. Whether others changed
// something in that time is seen from the generation. It ends with listening.
// Generation 0 means that it was made for any.
func (p *Plane) commitQuietly(b *batch, generation uint32) error {
	b.onlyAt(generation)
	after := generation
	if b.size > 0 {
		after++
	}
	if b.isLarge() {
		if err := p.watch.leave(); err != nil {
			return err
		}
	}
	if err := b.commit(); err != nil {
		return errors.Join(err, p.watch.join())
	}
	if p.watch == nil || p.watch.joined {
		return nil
	}
	if err := p.watch.join(); err != nil {
		return err
	}
	now, err := p.socket.generation()
	if err != nil {
		return err
	}
	if generation != 0 && now != after {
		p.options.Drift()
	}
	return nil
}

func (w *watch) close() error {
	if w == nil {
		return nil
	}
	_, err := unix.Write(w.wake, binary.NativeEndian.AppendUint64(nil, 1))
	if err != nil {
		return fmt.Errorf("end watch: %w", err)
	}
	w.done.Wait()
	return errors.Join(w.socket.close(), unix.Close(w.wake))
}

// run calls drift once for each burst of changes to the table.
func (w *watch) run(drift func()) {
	fds := []unix.PollFd{{Fd: int32(w.socket.fd), Events: unix.POLLIN}, {Fd: int32(w.wake), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			drift() // blind from here on: let the caller look for itself
			return
		}
		if fds[1].Revents != 0 {
			return
		}
		touched, err := w.drain()
		if err != nil {
			drift() // as above
			return
		}
		if touched {
			drift()
		}
	}
}

// drain receives all there is. If the kernel had to drop messages, nobody knows
// what they said.
func (w *watch) drain() (touched bool, err error) {
	for {
		err := w.socket.receive(false, func(h nlmsg.Header, body []byte) error {
			touched = touched || aboutTable(h, body)
			return nil
		})
		switch {
		case errors.Is(err, unix.EAGAIN):
			return touched, nil
		case errors.Is(err, unix.ENOBUFS):
			touched = true
		case err != nil && !errors.Is(err, unix.EINTR):
			return touched, err
		}
	}
}

// aboutTable reports whether a message is about the plane's table. Everything
// in nf_tables names its table in its first attribute.
func aboutTable(h nlmsg.Header, body []byte) bool {
	kind := h.Type & 0xff
	if h.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || kind == unix.NFT_MSG_NEWGEN || len(body) < nfgenmsgLen {
		return false
	}
	if body[0] != unix.NFPROTO_INET {
		return false
	}
	for typ, value := range nlmsg.Attributes(body[nfgenmsgLen:]).All() {
		if typ == unix.NFTA_TABLE_NAME {
			return value.Text() == tableName
		}
	}
	return false
}
