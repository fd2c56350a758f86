package planes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// invalid has the backend of a flow send a segment from far outside the window.
// Conntrack calls it INVALID and doesn't translate it back. If it reaches the
// client, or the node that masqueraded the client, with the backend's own
// address, that answers with a RST, which ends the connection
// (kubernetes/kubernetes issue 74839).
func (r *Run) invalid(f *flow) error {
	if f.probe.Proto != model.TCP {
		return fmt.Errorf("the flow is of %s, and only TCP has windows", f.probe.Proto)
	}
	if r.topo == nil {
		return nil
	}
	name, _, _ := strings.Cut(f.last.Backend, ":")
	backend, known := hosts[name]
	if !known {
		return fmt.Errorf("the flow's backend %q is no host", f.last.Backend)
	}
	if err := r.topo.hosts[name].Do(func() error { return sendInvalid(f, backend) }); err != nil {
		return fmt.Errorf("send a segment outside the window: %w", err)
	}
	time.Sleep(50 * time.Millisecond) // for a RST to do its work
	was := f.last
	return f.ask(wanted{outcome: Forwarded, backends: map[string]bool{was.Backend: was.Client != was.Local}, lenient: true})
}

// sendInvalid runs in the backend's namespace. It listens to what the client
// says over the flow to learn ports and sequence numbers.
func sendInvalid(f *flow, backend Host) (err error) {
	family := unix.AF_INET
	if f.last.Client.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return fmt.Errorf("open raw socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if answer := question(f.conn, model.TCP, waitTimeout); answer.Outcome != Forwarded {
		return fmt.Errorf("ask before: %s", answer)
	}
	heard, from, err := hear(fd, f.last.Client)
	if err != nil {
		return err
	}
	segment := make([]byte, 20, 21)
	copy(segment[0:2], heard[2:4])
	copy(segment[2:4], heard[0:2])
	data := len(heard) - int(heard[12]>>4)*4
	binary.BigEndian.PutUint32(segment[4:8], binary.BigEndian.Uint32(heard[8:12])+1<<30)
	binary.BigEndian.PutUint32(segment[8:12], binary.BigEndian.Uint32(heard[4:8])+uint32(data))
	segment[12], segment[13] = 5<<4, 0x18 // PSH, ACK
	binary.BigEndian.PutUint16(segment[14:16], 65535)
	segment = append(segment, 'x')
	binary.BigEndian.PutUint16(segment[16:18], checksum(backend.addr(from), from, segment))
	return sendTo(fd, segment, from)
}

// hear waits for the segment in which the client asks, and takes the IP header
// off, which raw IPv4 sockets deliver too.
func hear(fd int, client netip.Addr) ([]byte, netip.Addr, error) {
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(waitTimeout / time.Second)}); err != nil {
		return nil, client, fmt.Errorf("limit the wait: %w", err)
	}
	for buf := make([]byte, 2048); ; {
		n, sender, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, client, fmt.Errorf("listen to the client's segments: %w", err)
		}
		segment, from := buf[:n], netip.Addr{}
		switch a := sender.(type) {
		case *unix.SockaddrInet4:
			from, segment = netip.AddrFrom4(a.Addr), segment[int(segment[0]&0xf)*4:]
		case *unix.SockaddrInet6:
			from = netip.AddrFrom16(a.Addr)
		}
		if from == client && bytes.HasSuffix(segment, []byte("who?\n")) {
			return segment, from, nil
		}
	}
}

func sendTo(fd int, segment []byte, to netip.Addr) error {
	if to.Is6() {
		return unix.Sendto(fd, segment, 0, &unix.SockaddrInet6{Addr: to.As16()})
	}
	return unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: to.As4()})
}

// checksum is TCP's, with the pseudo header (RFC 9293, section 3.1).
func checksum(src, dst netip.Addr, segment []byte) uint16 {
	pseudo := append(src.AsSlice(), dst.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(segment)))
	pseudo = append(pseudo, 0, 0, 0, unix.IPPROTO_TCP)
	all := append(pseudo, segment...)
	if len(all)%2 == 1 {
		all = append(all, 0)
	}
	sum := uint32(0)
	for i := 0; i < len(all); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(all[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
