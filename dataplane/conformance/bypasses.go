package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// bypasses says something over a flow, and finds answers that pass the node though
// another one shall send them (direct server return).
func (r *Run) bypasses(f *flow) error {
	if r.topo == nil {
		return nil
	}
	fd := -1
	err := r.topo.node.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_ALL)))
		return err
	})
	if err != nil {
		return fmt.Errorf("listen to the node's packets: %w", err)
	}
	was := f.last
	err = f.ask(wanted{outcome: Forwarded, backends: map[string]bool{was.Backend: was.Client != was.Local}})
	if err == nil {
		// What passed has done so before it was received.
		err = answersAt(fd, was)
	}
	return errors.Join(err, unix.Close(fd))
}

// answersAt reads what a packet socket has heard, in which there must be packets
// of the client and none to it.
func answersAt(fd int, flow Answer) error {
	buffer := make([]byte, 128)
	asked := 0
	for {
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return fmt.Errorf("listen to the node's packets: %w", err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OTHERHOST {
			continue // the bridge doesn't know yet where it belongs
		}
		src, dst, ok := addressesOf(buffer[:n])
		switch {
		case !ok:
		case src == flow.Local:
			asked++
		case dst == flow.Local:
			return fmt.Errorf("a packet from %s to %s passes the node", src, dst)
		}
	}
	if asked == 0 {
		return fmt.Errorf("no packet of %s passes the node", flow.Local)
	}
	return nil
}

// addressesOf reads an IP header, unless it is one of ICMPv6, which hosts use to
// find each other.
func addressesOf(b []byte) (src, dst netip.Addr, ok bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
	case len(b) >= 40 && b[0]>>4 == 6 && b[6] != unix.IPPROTO_ICMPV6:
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
	default:
		return src, dst, false
	}
	return src, dst, true
}

// networkOrder turns a number as packet sockets have it (packet(7)).
func networkOrder(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}
