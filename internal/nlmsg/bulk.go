package nlmsg

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// BulkSocket sends many messages to the kernel in one system call. The kernel takes them
// one after another (netlink_rcv_skb), and each comes to its end before the call
// does. Only the last asks for an acknowledgement: what fails is told of in any case,
// so silence until then is success.
type BulkSocket struct {
	file   *os.File // which closes the socket
	socket int
	sent   uint32 // messages
	buffer []byte // for an answer
	Calls  int    // system calls so far
	// Fault, if not nil, is what a test has the next call end with.
	Fault func() error
}

// BulkMessages and mostBytes are how much goes in one call. The errors of all must
// have room in the socket's receive buffer, of which each takes up to 1,280 bytes; by
// default there are 212,992 (net.core.rmem_default).
const (
	BulkMessages = 128
	mostBytes    = 32 << 10
)

// OpenBulk opens a socket of a netlink protocol (unix.NETLINK_…).
func OpenBulk(protocol int) (*BulkSocket, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	b := &BulkSocket{file: os.NewFile(uintptr(socket), "netlink"), socket: socket, buffer: make([]byte, nl.RECEIVE_BUFFER_SIZE)}
	err = errors.Join(
		unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(socket, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1), // errors without what they are about
	)
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	return b, nil
}

// Close gives up the socket, on which nothing is left to be said.
func (b *BulkSocket) Close() { _ = b.file.Close() }

// Do sends messages, in order, and tells by their indices which have failed and why.
// What the kernel answers beside that goes to answer, which may be nil.
func (b *BulkSocket) Do(messages []*nl.NetlinkRequest, answer func(i int, msg []byte)) (map[int]error, error) {
	failed := map[int]error{}
	before := b.sent
	for rest := messages; len(rest) > 0; {
		data, n := b.pack(rest)
		rest = rest[n:]
		b.Calls++
		if b.Fault != nil {
			if err := b.Fault(); err != nil {
				return nil, fmt.Errorf("send to the kernel: %w", err)
			}
		}
		if err := unix.Sendto(b.socket, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, fmt.Errorf("send to the kernel: %w", err)
		}
		err := b.receive(func(seq uint32, errno unix.Errno, msg []byte) {
			switch i := int(int32(seq - before - 1)); {
			case i < 0 || i >= len(messages): // of an earlier call that came to nothing
			case errno != 0:
				failed[i] = errno
			case msg != nil && answer != nil:
				answer(i, msg)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// pack numbers the first messages, as many as go in one call, and puts them behind
// each other.
func (b *BulkSocket) pack(messages []*nl.NetlinkRequest) (data []byte, n int) {
	last := 0
	for ; n < len(messages) && n < BulkMessages && len(data) < mostBytes; n++ {
		b.sent++
		messages[n].Seq = b.sent
		last = len(data)
		data = append(data, messages[n].Serialize()...)
		data = append(data, make([]byte, nlmAlign(len(data))-len(data))...)
	}
	nl.NativeEndian().PutUint16(data[last+6:], messages[n-1].Flags|unix.NLM_F_ACK)
	return data, n
}

// receive reads answers up to that to the last message that was sent.
func (b *BulkSocket) receive(take func(seq uint32, errno unix.Errno, msg []byte)) error {
	for {
		b.Calls++
		n, _, err := unix.Recvfrom(b.socket, b.buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive from the kernel: %w", err)
		}
		ended := false
		err = Each(b.buffer[:n], func(h Header, body []byte) error {
			if h.Type != unix.NLMSG_ERROR || len(body) < 4 {
				take(h.Seq, 0, body)
				return nil
			}
			take(h.Seq, unix.Errno(-int32(nl.NativeEndian().Uint32(body))), nil)
			ended = ended || h.Seq == b.sent
			return nil
		})
		if err != nil {
			return fmt.Errorf("receive from the kernel: %w", err)
		}
		if ended {
			return nil
		}
	}
}

func nlmAlign(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
