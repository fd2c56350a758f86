package planes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// bypasses says something over a flow, and finds answers that pass the node though
// another one shall send them (direct server return).
func (r *Run) bypasses(f *flow) error {
	if r.topo == nil {
		return nil
	}
	fd, err := r.topo.listenAtNode()
	if err != nil {
		return fmt.Errorf("listen to the node's packets: %w", err)
	}
	was := f.last
	err = f.ask(wanted{outcome: Forwarded, sources: r.topo.sources(), backends: map[string]bool{was.Backend: was.Client != was.Local}})
	if err == nil {
		// What passed has done so before it was received.
		err = answersAt(fd, localOf(f.conn))
	}
	return errors.Join(err, unix.Close(fd))
}

// listenAtNode opens a packet socket that hears what passes the node: in it, or, since what its
// driver sends on is heard nowhere there, at the other end of its link.
func (s *Topology) listenAtNode() (fd int, err error) {
	listen := func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_ALL)))
		return err
	}
	if os.Getenv(XDPEnv) == "" {
		err = s.node.Do(listen)
		return fd, err
	}
	err = s.lab.Underlay().Do(func() error {
		port, err := net.InterfaceByName(NodeName)
		if err != nil {
			return err
		}
		if err := listen(); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: port.Index})
	})
	return fd, err
}

// isForOthers reports whether a packet that was heard isn't for the node, or from it.
func isForOthers(from unix.Sockaddr, toClient bool) bool {
	ll, ok := from.(*unix.SockaddrLinklayer)
	switch {
	case !ok:
		return false
	case os.Getenv(XDPEnv) == "":
		return ll.Pkttype == unix.PACKET_OTHERHOST // the bridge doesn't know yet where it belongs
	}
	return toClient == (ll.Pkttype == unix.PACKET_OUTGOING) // what leaves the other end goes to the node
}

// localOf is the client's end of a connection.
func localOf(c net.Conn) netip.AddrPort {
	at := netip.MustParseAddrPort(c.LocalAddr().String())
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// answersAt reads what a packet socket has heard, in which there must be packets
// of the client's end and none to it. Late ones of other connections don't count.
func answersAt(fd int, client netip.AddrPort) error {
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
		src, dst, ok := endsOf(buffer[:n])
		switch {
		case !ok || isForOthers(from, dst == client):
		case src == client:
			asked++
		case dst == client:
			return fmt.Errorf("a packet from %s to %s passes the node", src, dst)
		}
	}
	if asked == 0 {
		return fmt.Errorf("no packet of %s passes the node", client)
	}
	return nil
}

// endsOf reads the headers of a TCP or UDP packet.
func endsOf(b []byte) (src, dst netip.AddrPort, ok bool) {
	var from, to netip.Addr
	protocol, ports := byte(0), 0
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		from, _ = netip.AddrFromSlice(b[12:16])
		to, _ = netip.AddrFromSlice(b[16:20])
		protocol, ports = b[9], int(b[0]&15)*4
	case len(b) >= 40 && b[0]>>4 == 6: // without extension headers
		from, _ = netip.AddrFromSlice(b[8:24])
		to, _ = netip.AddrFromSlice(b[24:40])
		protocol, ports = b[6], 40
	}
	if protocol != unix.IPPROTO_TCP && protocol != unix.IPPROTO_UDP || len(b) < ports+4 {
		return src, dst, false
	}
	b = b[ports:]
	return netip.AddrPortFrom(from, binary.BigEndian.Uint16(b)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:])), true
}

// networkOrder turns a number as packet sockets have it (packet(7)).
func networkOrder(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}
