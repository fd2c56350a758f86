package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/packet"

	"github.com/fairway-net/fairway/lab/topology"
)

const (
	listenFor  = 2 * time.Second
	etherTypes = 0x0003 // ETH_P_ALL
)

// forwarder names the node at which a client's flow arrives.
func (l *announceLab) forwarder(ctx context.Context, flow *probe) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listenFor)
	defer cancel()
	type heard struct {
		node string
		err  error
	}
	results := make(chan heard, len(announcers))
	for _, node := range announcers {
		go func() { results <- heard{node, l.hears(ctx, node, flow)} }()
	}
	var errs []error
	for range announcers {
		r := <-results
		if r.err == nil {
			return r.node, nil
		}
		errs = append(errs, r.err)
	}
	return "", fmt.Errorf("the flow comes to no node: %w", errors.Join(errs...))
}

// hears returns without an error once a datagram of the flow arrives at a node.
func (l *announceLab) hears(ctx context.Context, node string, flow *probe) error {
	var conn *packet.Conn
	name := topology.NodeInterface
	if l.way == wayAttached {
		name = uplink
	}
	err := l.hosts[node].Do(func() error {
		device, err := net.InterfaceByName(name)
		if err == nil {
			conn, err = packet.Listen(device, packet.Raw, etherTypes, nil)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("listen on %s: %w", node, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	defer conn.Close() //nolint:errcheck // it only listened
	buffer := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", node, err)
		}
		if isOf(buffer[:n], flow.from().Port(), flow.to) {
			return nil
		}
	}
}

// isOf reports whether a frame is a datagram from a port to an address.
func isOf(frame []byte, from uint16, to netip.AddrPort) bool {
	const ether, v4, v6, udp = 14, 20, 40, 17
	if len(frame) < ether+v6+8 && to.Addr().Is6() || len(frame) < ether+v4+8 {
		return false
	}
	ip, head, protocol, destination := frame[ether:], v4, 9, 16
	if to.Addr().Is6() {
		head, protocol, destination = v6, 6, 24
	}
	if ip[0]>>4 == 6 != to.Addr().Is6() || ip[protocol] != udp {
		return false
	}
	a, _ := netip.AddrFromSlice(ip[destination : destination+to.Addr().BitLen()/8])
	return a == to.Addr() && binary.BigEndian.Uint16(ip[head:]) == from && binary.BigEndian.Uint16(ip[head+2:]) == to.Port()
}
