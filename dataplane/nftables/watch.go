package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// watch notices when somebody else changes the table.
type watch struct {
	socket *socket
	wake   int // eventfd that ends the goroutine
	done   sync.WaitGroup
}

// startWatch subscribes to what the kernel says of changes to nf_tables, on a
// socket of its own. Own changes are filtered out in the kernel.
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
	if err := s.subscribe(p.socket.portid); err != nil {
		return errors.Join(fmt.Errorf("subscribe to nf_tables changes: %w", err), s.close(), unix.Close(wake))
	}
	p.watch = w
	w.done.Go(func() { w.run(p.options.Drift) })
	return nil
}

// subscribe joins the group of nf_tables, without the messages that follow
// from what the socket with this port id sent. The kernel puts the messages of
// one transaction into datagrams of their own (nft_commit_notify), so the
// first one's sender is that of all.
func (s *socket) subscribe(except uint32) error {
	sender := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, except))
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12}, // nlmsghdr.nlmsg_pid
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: sender},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
		return err
	}
	return unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES)
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

// run calls drift once for each burst of changes to the table. If the kernel
// had to drop messages, nobody knows what they said.
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
		touched := false
		for {
			err := w.socket.receive(false, func(h header, body []byte) error {
				touched = touched || aboutTable(h, body)
				return nil
			})
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			touched = touched || err != nil
		}
		if touched {
			drift()
		}
	}
}

// aboutTable reports whether a message is about the plane's table. Everything
// in nf_tables names its table in its first attribute.
func aboutTable(h header, body []byte) bool {
	kind := h.typ & 0xff
	if h.typ>>8 != unix.NFNL_SUBSYS_NFTABLES || kind == unix.NFT_MSG_NEWGEN || len(body) < nfgenmsgLen {
		return false
	}
	if body[0] != unix.NFPROTO_INET {
		return false
	}
	for typ, value := range attributes(body[nfgenmsgLen:]) {
		if typ == unix.NFTA_TABLE_NAME {
			return text(value) == tableName
		}
	}
	return false
}
