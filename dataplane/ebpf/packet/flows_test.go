package packet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

// dial opens a connection, or a connected UDP socket, that lives as long as the
// test.
func (s *rig) dial(t *testing.T, from, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := s.hosts[from].DialContext(ctx, network, to.String())
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

func expectSays(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got, err := say(c, 30*time.Second)
	if err != nil || got != want {
		t.Errorf("%s -> %s: %q, %v; expected %q", c.LocalAddr(), c.RemoteAddr(), got, err, want)
	}
}

// TestFlows is about connections that live while things change.
func TestFlows(t *testing.T) {
	s := newRig(t)
	s.apply(t, s.tableOf(service{backends: []string{"a"}}))
	vip, nodePort := netip.AddrPortFrom(vips[0], 80), netip.AddrPortFrom(s.node.IPv4(), 30080)
	tcp, udp := s.dial(t, "client", "tcp", nodePort), s.dial(t, "client", "udp", nodePort)
	pod, podUDP := s.dial(t, "b", "tcp", vip), s.dial(t, "b", "udp", vip)
	fromA, fromC := fmt.Sprint("a ", s.node.IPv4()), fmt.Sprint("c ", s.node.IPv4())
	asB := fmt.Sprint("a ", s.hosts["b"].IPv4())
	for c, want := range map[net.Conn]string{tcp: fromA, udp: fromA, pod: asB, podUDP: asB} {
		expectSays(t, c, want)
	}

	// Another process takes over the pinned programs and connections.
	must(t, s.packets.Close())
	must(t, s.store.Close())
	s.start(t)
	s.apply(t, s.tableOf(service{backends: []string{"c"}}))
	expectSays(t, tcp, fromA)
	expectSays(t, pod, asB)
	expectSays(t, udp, fromC)
	expectSays(t, podUDP, "c "+s.hosts["b"].IPv4().String())

	// Orphans.
	late := s.tableOf(service{backends: []string{"a"}, pool: func(p *model.Pool) { p.Orphans, p.OrphanDeadline = model.OrphansDeadline, time.Hour }})
	s.apply(t, late)
	again := s.dial(t, "client", "tcp", nodePort)
	expectSays(t, again, fromA)
	s.apply(t, s.tableOf(service{backends: []string{"c"}, pool: func(p *model.Pool) { p.Orphans = model.OrphansReset }}))
	for _, c := range []net.Conn{again, tcp, pod} {
		if _, err := say(c, 30*time.Second); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("orphan %s -> %s: %v, expected a reset", c.LocalAddr(), c.RemoteAddr(), err)
		}
	}

	// The frontend goes; UDP is refused, and comes back.
	s.apply(t, model.NewTable().Edit().Table())
	s.apply(t, s.tableOf(service{}))
	if _, err := say(podUDP, 30*time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("UDP without backends: %v, expected connection refused", err)
	}
	s.apply(t, s.tableOf(service{backends: []string{"a"}}))
	expectSays(t, podUDP, asB)
}

// TestReuse has a client use one port for connection after connection, and for
// two frontends at once that have the same backend.
func TestReuse(t *testing.T) {
	s := newRig(t)
	s.apply(t, s.tableOf(service{backends: []string{"a"}}))
	frontends := []netip.AddrPort{netip.AddrPortFrom(vips[0], 80), netip.AddrPortFrom(s.node.IPv4(), 30080)}
	for range 5 {
		for _, to := range frontends {
			for _, from := range []string{"b", "client"} {
				must(t, s.askFrom(from, 40123, to))
			}
		}
	}
	var open []net.Conn
	for _, to := range frontends {
		c, err := s.dialFrom("b", 40124, to)
		must(t, err)
		open = append(open, c)
	}
	for _, c := range open {
		if _, err := say(c, 30*time.Second); err != nil {
			t.Errorf("%s -> %s: %v", c.LocalAddr(), c.RemoteAddr(), err)
		}
		must(t, c.Close())
	}
}

// TestReuseOfOthers has clients use a port for a frontend through netfilter, and
// then, when the programs have taken over, for another with the same backend. The
// first one may be gone by then.
func TestReuseOfOthers(t *testing.T) {
	s := newRig(t)
	vip, nodePort := netip.AddrPortFrom(vips[0], 80), netip.AddrPortFrom(s.node.IPv4(), 30080)
	gone := netip.AddrPortFrom(vips[0], 8888)
	s.nft(t, fmt.Sprintf(`table ip others {
		chain before {
			type nat hook prerouting priority dstnat
			ip daddr %[1]s tcp dport { %[2]d, %[3]d } dnat to %[4]s:8080
		}
	}`, vip.Addr(), vip.Port(), gone.Port(), s.hosts["a"].IPv4()))
	for _, from := range []string{"b", "client"} {
		must(t, s.askFrom(from, 40123, vip))
		held, err := s.dialFrom(from, 40124, gone)
		must(t, err)
		defer held.Close()
	}
	s.apply(t, s.tableOf(service{backends: []string{"a"}}))
	s.nft(t, "delete table ip others")
	for _, port := range []int{40124, 40123} {
		for _, to := range []netip.AddrPort{nodePort, vip} {
			for _, from := range []string{"b", "client"} {
				if err := s.askFrom(from, port, to); err != nil {
					t.Errorf("%s:%d -> %s: %v", from, port, to, err)
				}
			}
		}
	}
}

// TestReuseByNode has the node connect to a backend from the port that a connection
// had there which was masqueraded.
func TestReuseByNode(t *testing.T) {
	s := newRig(t)
	s.apply(t, s.tableOf(service{backends: []string{"a"}}))
	c, err := s.dialFrom("client", 40123, netip.AddrPortFrom(s.node.IPv4(), 30080))
	must(t, err)
	_, err = io.WriteString(c, "hello\n")
	must(t, err)
	line, err := bufio.NewReader(c).ReadString('\n')
	must(t, err)
	must(t, c.Close())
	_, seen, _ := strings.Cut(strings.TrimSpace(line), " ")
	from := netip.MustParseAddrPort(seen)
	if from.Addr().Unmap() != s.node.IPv4() {
		t.Fatalf("%q: want the node's address", line)
	}
	must(t, s.askFrom("node", int(from.Port()), netip.AddrPortFrom(s.hosts["a"].IPv4(), 8080)))
}

// nft runs commands of nft's on the node.
func (s *rig) nft(t *testing.T, commands string) {
	t.Helper()
	nft := exec.Command("nft", "-f", "-")
	var said strings.Builder
	nft.Stdin, nft.Stdout, nft.Stderr = strings.NewReader(commands), &said, &said
	must(t, s.node.Start(nft))
	if err := nft.Wait(); err != nil {
		t.Fatalf("nft: %v: %s", err, said.String())
	}
}

// dialFrom connects from a port that may be in use, though not for the same
// destination. It closes with a RST, so that the port can be used again at once.
func (s *rig) dialFrom(from string, port int, to netip.AddrPort) (net.Conn, error) {
	var c net.Conn
	err := s.hosts[from].Do(func() (err error) {
		d := net.Dialer{
			Timeout: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: s.hosts[from].IPv4().AsSlice(), Port: port},
			Control: func(_, _ string, raw syscall.RawConn) error {
				var err error
				return errors.Join(raw.Control(func(fd uintptr) {
					err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
				}), err)
			},
		}
		c, err = d.Dial("tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, c.(*net.TCPConn).SetLinger(0)
}

func (s *rig) askFrom(from string, port int, to netip.AddrPort) error {
	c, err := s.dialFrom(from, port, to)
	if err != nil {
		return err
	}
	_, err = say(c, 30*time.Second)
	return errors.Join(err, c.Close())
}

// TestFragments sends datagrams larger than the path's MTU, in fragments and,
// where they are too large for the way, learning of it from ICMP errors.
func TestFragments(t *testing.T) {
	s := newRig(t)
	for name, h := range s.hosts {
		if name != "client" {
			startMirror(t, h)
		}
	}
	for _, backend := range []string{"a", "c"} {
		s.apply(t, s.tableOf(service{backends: []string{backend}, port: 7}))
		for i, vip := range vips {
			for _, to := range []netip.AddrPort{netip.AddrPortFrom(vip, 80), netip.AddrPortFrom(s.node.Addresses[i], 30080)} {
				for _, from := range []string{"b", "client"} {
					for _, size := range []int{100, 1460, 4000} {
						if err := mirrored(s.dial(t, from, "udp", to), size); err != nil {
							t.Errorf("%d bytes from %s to %s (%s): %v", size, from, to, backend, err)
						}
					}
				}
			}
		}
	}
}

// TestPathMTU narrows the way to the backend: clients hear of it by ICMP errors
// about packets that they sent to a frontend.
func TestPathMTU(t *testing.T) {
	s := newRig(t)
	startMirror(t, s.hosts["c"])
	s.apply(t, s.tableOf(service{backends: []string{"c"}, port: 7}))
	must(t, s.hosts["peer"].Do(func() error { return setMTU(topology.PodInterfacePrefix+"2", 1300) }))
	must(t, s.hosts["c"].Do(func() error { return sendUpTo(1300) }))
	for i, vip := range vips {
		for _, to := range []netip.AddrPort{netip.AddrPortFrom(vip, 80), netip.AddrPortFrom(s.node.Addresses[i], 30080)} {
			for _, from := range []string{"b", "client"} {
				c := s.dial(t, from, "tcp", to)
				if err := mirrored(c, 200_000); err != nil {
					t.Errorf("200000 bytes from %s to %s: %v", from, to, err)
				}
				if mtu, err := pathMTU(c, i == 1); err != nil || mtu != 1300 {
					t.Errorf("path MTU from %s to %s: %d, %v; expected 1300", from, to, mtu, err)
				}
			}
		}
	}
}

func setMTU(name string, mtu int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(l, mtu)
}

// sendUpTo has routes say how large packets may be: what is larger than the other
// end of a veth takes is dropped there without a word. Clients are told of
// segments of Ethernet's size all the same, and have to find out.
func sendUpTo(mtu int) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.Gw == nil {
				continue
			}
			r.MTU, r.AdvMSS = mtu, 1440
			if err := netlink.RouteReplace(&r); err != nil {
				return err
			}
		}
	}
	return nil
}

func pathMTU(c net.Conn, v6 bool) (mtu int, err error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	var failed error
	err = raw.Control(func(fd uintptr) { mtu, failed = unix.GetsockoptInt(int(fd), level, option) })
	return mtu, errors.Join(err, failed)
}

// mirrored sends some bytes and expects them back.
func mirrored(c net.Conn, size int) error {
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	out, in := make([]byte, size), make([]byte, size)
	for i := range out {
		out[i] = byte(i * 7)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(out)
		if _, datagram := c.(*net.UDPConn); datagram && errors.Is(err, syscall.EMSGSIZE) {
			_, err = c.Write(out) // now it is known how large fragments may be
		}
		sent <- err
	}()
	for n := 0; n < size; {
		m, err := c.Read(in[n:])
		if err != nil {
			return errors.Join(err, fmt.Errorf("%d bytes came back", n))
		}
		n += m
	}
	if !bytes.Equal(in, out) {
		return errors.New("what came back isn't what was sent")
	}
	return <-sent
}

// startMirror sends back whatever comes to port 7 (RFC 862).
func startMirror(t *testing.T, h *topology.Host) {
	t.Helper()
	must(t, h.Do(func() error {
		l, err := net.Listen("tcp", ":7")
		if err != nil {
			return err
		}
		p, err := net.ListenPacket("udp", ":7")
		if err != nil {
			return errors.Join(err, l.Close())
		}
		t.Cleanup(func() { must(t, errors.Join(l.Close(), p.Close())) })
		go mirrorStreams(l)
		go mirrorPackets(p)
		return nil
	}))
}

func mirrorStreams(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 1<<16)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func mirrorPackets(p net.PacketConn) {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := p.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if err == nil {
			_, err = p.WriteTo(buf[:n], from)
		}
		if errors.Is(err, syscall.EMSGSIZE) {
			_, _ = p.WriteTo(buf[:n], from) //nolint:errcheck // the client says what is missing
		}
	}
}
