package userspace

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// refuse answers a datagram with an ICMP port-unreachable error, where the
// kernel doesn't, since the port is open for others (RFC 792, RFC 4443 3.1). It
// needs CAP_NET_RAW; without it the client hears nothing.
func refuse(k model.Key, client netip.AddrPort, length int) error {
	network, message := "ip4:icmp", unreachable4(k, client, length)
	if k.Addr.Is6() {
		network, message = "ip6:ipv6-icmp", unreachable6(k, client, length)
	}
	conn, err := listenConfig.ListenPacket(context.Background(), network, k.Addr.String())
	if err != nil {
		return fmt.Errorf("refuse %s: %w", client, err)
	}
	_, err = conn.WriteTo(message, &net.IPAddr{IP: client.Addr().AsSlice(), Zone: client.Addr().Zone()})
	discard(conn.Close())
	if err != nil {
		return fmt.Errorf("refuse %s: %w", client, err)
	}
	return nil
}

// unreachable4 quotes as much of the datagram as a client's kernel looks at:
// its IP and UDP headers.
func unreachable4(k model.Key, client netip.AddrPort, length int) []byte {
	m := []byte{3, 3, 0, 0, 0, 0, 0, 0} // destination unreachable, port
	m = append(m, 0x45, 0)
	m = binary.BigEndian.AppendUint16(m, uint16(20+8+length))
	m = append(m, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0)
	m = append(append(m, client.Addr().AsSlice()...), k.Addr.AsSlice()...)
	m = appendUDP(m, k, client, length)
	binary.BigEndian.PutUint16(m[2:], checksum(m))
	return m
}

// unreachable6 leaves the checksum to the kernel (RFC 3542 3.1).
func unreachable6(k model.Key, client netip.AddrPort, length int) []byte {
	m := []byte{1, 4, 0, 0, 0, 0, 0, 0} // destination unreachable, port
	m = append(m, 0x60, 0, 0, 0)
	m = binary.BigEndian.AppendUint16(m, uint16(8+length))
	m = append(m, unix.IPPROTO_UDP, 64)
	m = append(append(m, client.Addr().AsSlice()...), k.Addr.AsSlice()...)
	return appendUDP(m, k, client, length)
}

func appendUDP(m []byte, k model.Key, client netip.AddrPort, length int) []byte {
	for _, field := range []uint16{client.Port(), k.Port, uint16(8 + length), 0} {
		m = binary.BigEndian.AppendUint16(m, field)
	}
	return m
}

// checksum is the Internet checksum of an even number of bytes (RFC 1071).
func checksum(m []byte) uint16 {
	var sum uint32
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
