// Package pathbench measures what the first packet of a connection costs on its way
// from a pod through a node, whatever the node's rules are.
package pathbench

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Cable is a pod's interface, into which packets are written from this
// namespace, with the way out of the node beside it.
type Cable struct {
	fd   int
	to   unix.SockaddrLinklayer
	node net.HardwareAddr
}

// New makes the cable in the network namespace of the caller's thread.
func New(b *testing.B) *Cable {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{"net/ipv4/ip_forward=1", "net/ipv4/conf/all/rp_filter=0", "net/ipv4/conf/default/rp_filter=0"} {
		key, value := name[:len(name)-2], name[len(name)-1:]
		must(os.WriteFile("/proc/sys/"+key, []byte(value), 0o644))
	}
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "pod0"}, PeerName: "inside"}))
	// The way out has no other end that is up: packets end there.
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out0"}, PeerName: "nowhere"}))
	links := map[string]netlink.Link{}
	for _, name := range []string{"lo", "pod0", "inside", "out0"} {
		link, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(link))
		links[name] = link
	}
	must(netlink.LinkSetARPOff(links["out0"]))
	must(netlink.AddrAdd(links["out0"], &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}}))
	for cidr, out := range map[string]string{"10.244.1.0/24": "pod0", "10.128.0.0/9": "out0"} {
		_, dst, err := net.ParseCIDR(cidr)
		must(err)
		must(netlink.RouteAdd(&netlink.Route{LinkIndex: links[out].Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: dst}))
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	must(err)
	b.Cleanup(func() { must(unix.Close(fd)) })
	return &Cable{fd: fd, node: links["pod0"].Attrs().HardwareAddr,
		to: unix.SockaddrLinklayer{Ifindex: links["inside"].Attrs().Index, Protocol: 0x0008}}
}

// round is how many connections there are at once.
const round = 20000

// Measure reports the processor time of connections, of which the n-th is to(n):
// that of sending the first packet, since all of the path belongs to that.
func (c *Cable) Measure(b *testing.B, to func(n int) netip.AddrPort) {
	b.Helper()
	frame := make([]byte, 14+20+20)
	copy(frame, c.node)
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	var rounds []float64
	n := 0
	for b.Loop() {
		b.StopTimer()
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		began := threadTime(b)
		for range round {
			syn(frame[14:], n, to(n))
			if err := unix.Sendto(c.fd, frame, 0, &c.to); err != nil {
				b.Fatal(err)
			}
			n++
		}
		rounds = append(rounds, float64(threadTime(b)-began)/round)
	}
	count, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil || len(count) < round*9/10 {
		b.Errorf("%d connections are tracked of %d: %v", len(count), round, err)
	}
	slices.Sort(rounds)
	b.ReportMetric(rounds[len(rounds)/2], "cpu-ns/connection")
	b.ReportMetric(rounds[0], "least-cpu-ns/connection")
}

// Scattered is which of so many things connection n is to, in no order.
func Scattered(n, of int) int { return int(uint32(n)*2654435761>>8) % of }

// syn writes the first packet of connection n.
func syn(p []byte, n int, to netip.AddrPort) {
	clear(p)
	p[0], p[3], p[8], p[9] = 0x45, 40, 64, unix.IPPROTO_TCP
	copy(p[12:], []byte{10, 244, 1, 2 + byte(n/20000%200)})
	a := to.Addr().As4()
	copy(p[16:], a[:])
	binary.BigEndian.PutUint16(p[10:], checksum(p[:20], 0))
	t := p[20:]
	binary.BigEndian.PutUint16(t, uint16(10000+n%20000))
	binary.BigEndian.PutUint16(t[2:], to.Port())
	t[12], t[13] = 5<<4, 2
	t[14] = 0xff
	binary.BigEndian.PutUint16(t[16:], checksum(p[12:40], unix.IPPROTO_TCP+20))
}

func checksum(data []byte, sum uint32) uint16 {
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func threadTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
