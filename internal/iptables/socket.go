package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
func (s *socket) list(kind uint16, filter attributes, begin func(), each func(attributes)) error {
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

func (s *socket) send(kind, flags uint16, filter attributes) error {
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
func (s *socket) receive(each func(attributes)) error {
	changed := false
	for {
		n, _, err := unix.Recvfrom(s.number, s.buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		for rest := s.buffer[:n]; len(rest) >= unix.NLMSG_HDRLEN; {
			size := int(binary.NativeEndian.Uint32(rest))
			if size < unix.NLMSG_HDRLEN || size > len(rest) {
				return fmt.Errorf("message of %d bytes in a datagram of %d", size, len(rest))
			}
			kind, flags := binary.NativeEndian.Uint16(rest[4:]), binary.NativeEndian.Uint16(rest[6:])
			body := rest[unix.NLMSG_HDRLEN:size]
			changed = changed || flags&unix.NLM_F_DUMP_INTR != 0
			switch {
			case kind == unix.NLMSG_ERROR || kind == unix.NLMSG_DONE:
				return ending(body, changed)
			case len(body) >= generalHeader && (body[0] == s.protocolFamily() || body[0] == unix.NFPROTO_UNSPEC):
				each(attributes(body[generalHeader:]))
			}
			rest = rest[min(len(rest), (size+3)&^3):]
		}
	}
}

// ending is what the last message says: an error number, or that all was well.
func ending(body []byte, changed bool) error {
	if len(body) >= 4 {
		if number := int32(binary.NativeEndian.Uint32(body)); number != 0 {
			return unix.Errno(-number)
		}
	}
	if changed {
		return errChanging
	}
	return nil
}

// attributes are netlink attributes one after the other (struct nlattr,
// linux/netlink.h).
type attributes []byte

// next splits off the first attribute; ok is false at the end.
func (a attributes) next() (kind uint16, value, rest attributes, ok bool) {
	if len(a) < unix.NLA_HDRLEN {
		return 0, nil, nil, false
	}
	size := int(binary.NativeEndian.Uint16(a))
	if size < unix.NLA_HDRLEN || size > len(a) {
		return 0, nil, nil, false
	}
	kind = binary.NativeEndian.Uint16(a[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return kind, a[unix.NLA_HDRLEN:size], a[min(len(a), (size+3)&^3):], true
}

// get finds an attribute; nil if it isn't there.
func (a attributes) get(kind uint16) attributes {
	for {
		k, value, rest, ok := a.next()
		if !ok {
			return nil
		}
		if k == kind {
			return value
		}
		a = rest
	}
}

func (a attributes) text(kind uint16) string { return string(a.word(kind)) }

// word is a string without the zero behind it, and without a copy.
func (a attributes) word(kind uint16) []byte {
	v := a.get(kind)
	if i := bytes.IndexByte(v, 0); i >= 0 {
		return v[:i]
	}
	return v
}

// number is a number's value, 0 if it isn't there; nf_tables' numbers are big
// endian.
func (a attributes) number(kind uint16) uint32 {
	if v := a.get(kind); len(v) == 4 {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

// add appends a string.
func (a attributes) add(kind uint16, text string) attributes {
	size := unix.NLA_HDRLEN + len(text) + 1
	a = binary.NativeEndian.AppendUint16(a, uint16(size))
	a = binary.NativeEndian.AppendUint16(a, kind)
	return append(append(a, text...), make([]byte, (size+3)&^3-size+1)...)
}
