package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/nlmsg"
)

// socket is a netlink socket to nf_tables in the network namespace of the
// thread that opened it.
type socket struct {
	fd     int
	portid uint32
	seq    uint32
	sndbuf int
	buf    []byte
	sent   atomic.Int64 // messages, for tests that count
	fault  func() error // tests have calls of the kernel fail by it
	// unsteady has lists read on that change meanwhile.
	unsteady bool
}

// receiveBuffer holds the kernel's answers, which come all at once.
const receiveBuffer = 4 << 20

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, &kernel.MissingError{What: "nfnetlink (CONFIG_NETFILTER_NETLINK)", Since: "2.6.14", Err: err}
		}
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	s := &socket{fd: fd, buf: make([]byte, 64<<10)}
	if err := s.bind(); err != nil {
		return nil, errors.Join(fmt.Errorf("bind netlink socket: %w", err), s.close())
	}
	return s, nil
}

func (s *socket) bind() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	address, ok := name.(*unix.SockaddrNetlink)
	if !ok {
		return fmt.Errorf("unexpected address %T", name)
	}
	s.portid = address.Pid
	// Errors without a copy of the message that caused them: it may be large.
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return err
	}
	return permission(unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer))
}

func (s *socket) close() error { return unix.Close(s.fd) }

// permission says more clearly what a refusal means.
func permission(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return &kernel.MissingError{What: "CAP_NET_ADMIN", Err: err}
	}
	return err
}

// message appends a netlink message.
func (s *socket) message(to *nlmsg.Builder, typ, flags uint16, family byte, resource uint16, body []byte) uint32 {
	s.seq++
	w := binary.NativeEndian.AppendUint32(*to, uint32(unix.SizeofNlMsghdr+nfgenmsgLen+len(body)))
	w = binary.NativeEndian.AppendUint16(w, typ)
	w = binary.NativeEndian.AppendUint16(w, flags|unix.NLM_F_REQUEST)
	w = binary.NativeEndian.AppendUint32(w, s.seq)
	w = binary.NativeEndian.AppendUint32(w, s.portid)
	w = append(w, family, unix.NFNETLINK_V0)
	w = binary.BigEndian.AppendUint16(w, resource)
	w = append(w, body...)
	*to = w
	to.Pad()
	s.sent.Add(1)
	return s.seq
}

// send hands all of data over in one call, as a batch has to be.
func (s *socket) send(data ...[]byte) error {
	if s.fault != nil {
		if err := s.fault(); err != nil {
			return permission(err)
		}
	}
	// The kernel wants room for the whole batch and its own header at once.
	need := 4096
	for _, piece := range data {
		need += len(piece)
	}
	if need > s.sndbuf {
		if err := permission(unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, need)); err != nil {
			return fmt.Errorf("enlarge netlink socket buffer to %d bytes: %w", need, err)
		}
		s.sndbuf = need
	}
	_, err := unix.SendmsgBuffers(s.fd, data, nil, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}, 0)
	return permission(err)
}

// receive calls visit for each message of one datagram. With wait unset it
// returns EAGAIN if there is none.
func (s *socket) receive(wait bool, visit func(nlmsg.Header, []byte) error) error {
	flags := unix.MSG_TRUNC
	if !wait {
		flags |= unix.MSG_DONTWAIT
	}
	n, _, err := unix.Recvfrom(s.fd, s.buf, flags)
	if err != nil {
		return err
	}
	if n > len(s.buf) {
		return fmt.Errorf("netlink datagram of %d bytes is longer than expected", n)
	}
	return nlmsg.Each(s.buf[:n], visit)
}
