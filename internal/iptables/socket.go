package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// socket asks nf_tables for its objects of one family. It reads tens of
// thousands of short lists, for which the libraries' way of making a new buffer
// for each is too dear.
type socket struct {
	family   Family
	number   int
	sequence uint32
	buffer   []byte
}

// answerTimeout bounds how long the kernel may take for one message.
const answerTimeout = time.Minute

func openSocket(f Family) (*socket, error) {
	number, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", os.NewSyscallError("socket", err))
	}
	s := &socket{family: f, number: number, buffer: make([]byte, 1<<16)} // messages are of 32 KiB at most (netlink_dump, net/netlink/af_netlink.c)
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(number, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink socket: %w", os.NewSyscallError("setsockopt", err)), s.close())
	}
	return s, nil
}

func (s *socket) close() error { return os.NewSyscallError("close", unix.Close(s.number)) }

// listAttempts is how often a list is read that changes meanwhile.
const listAttempts = 10

var errChanging = errors.New("it changes all the time")

// list has the kernel list objects. If they change meanwhile, it begins again.
func (s *socket) list(kind uint16, filter nlmsg.Attributes, begin func(), each func(nlmsg.Attributes)) error {
	for range listAttempts {
		begin()
		if err := s.send(kind, unix.NLM_F_DUMP, filter); err != nil {
			return err
		}
		if err := s.receive(each); !errors.Is(err, errChanging) {
			return err
		}
	}
	return errChanging
}

// protocolFamily is the first byte of struct nfgenmsg (linux/netfilter/nfnetlink.h).
func (s *socket) protocolFamily() byte {
	if s.family == IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// generalHeader is struct nfgenmsg: family, version, resource.
const generalHeader = 4

func (s *socket) send(kind, flags uint16, filter nlmsg.Attributes) error {
	s.sequence++
	m := make([]byte, 0, 256)
	m = binary.NativeEndian.AppendUint32(m, uint32(unix.NLMSG_HDRLEN+generalHeader+len(filter)))
	m = binary.NativeEndian.AppendUint16(m, unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = binary.NativeEndian.AppendUint32(m, s.sequence)
	m = append(m, 0, 0, 0, 0, s.protocolFamily(), unix.NFNETLINK_V0, 0, 0)
	return os.NewSyscallError("sendto", unix.Sendto(s.number, append(m, filter...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// receive reads a list to its end, or an answer to the acknowledgement behind it.
func (s *socket) receive(each func(nlmsg.Attributes)) error {
	changed := false
	for {
		n, _, err := unix.Recvfrom(s.number, s.buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		ended := false
		err = nlmsg.Each(s.buffer[:n], func(h nlmsg.Header, body []byte) error {
			changed = changed || h.Flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case h.Type == unix.NLMSG_ERROR || h.Type == unix.NLMSG_DONE:
				ended = true
				return ending(body, changed)
			case len(body) >= generalHeader && (body[0] == s.protocolFamily() || body[0] == unix.NFPROTO_UNSPEC):
				each(nlmsg.Attributes(body[generalHeader:]))
			}
			return nil
		})
		if ended || err != nil {
			return err
		}
	}
}

// ending is what the last message says: an error number, or that all was well.
func ending(body []byte, changed bool) error {
	if err := nlmsg.Errno(body); err != nil && len(body) >= 4 {
		return err
	}
	if changed {
		return errChanging
	}
	return nil
}

// nameFilter appends an attribute that holds a name.
func nameFilter(a nlmsg.Attributes, kind uint16, name string) nlmsg.Attributes {
	b := nlmsg.Builder(a)
	b.Text(kind, name)
	return nlmsg.Attributes(b)
}
