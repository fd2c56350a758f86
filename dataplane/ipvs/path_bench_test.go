package ipvs

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
)

// BenchmarkPath is a pod's connections through this node to backends elsewhere:
// to them directly on a node without the plane and on one with it, to Services, and
// to Services on a node that has IPVS' virtual servers and none of the rules, which
// is what IPVS itself takes. It is run as [BenchmarkKernelStart] is.
func BenchmarkPath(b *testing.B) {
	needsIPVS(b)
	for _, way := range []string{"no plane", "direct", "VIP", "VIP, no rules"} {
		b.Run(way, func(b *testing.B) {
			w := newWay(b)
			to := netip.MustParseAddrPort("10.128.0.1:8080")
			if strings.HasPrefix(way, "VIP") {
				to = netip.MustParseAddrPort("10.96.0.1:80")
			}
			w.on(b, w.node, func() { prepare(b, way != "no plane", way != "VIP, no rules") })
			b.Run("connection", func(b *testing.B) {
				w.on(b, w.pod, func() {
					for b.Loop() {
						c := w.dial(b, to)
						c.exchange(b)
						c.hangUp(b)
					}
				})
			})
			b.Run("round trip", func(b *testing.B) {
				w.on(b, w.pod, func() {
					c := w.dial(b, to)
					for b.Loop() {
						c.exchange(b)
					}
					c.hangUp(b)
				})
			})
		})
	}
}

// conversation is both ends of a connection. One thread has them by turns, so that
// what is measured is the path and not who waits for whom.
type conversation struct{ client, server int }

func (w *way) dial(b *testing.B, to netip.AddrPort) conversation {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	}
	if err != nil {
		b.Fatal(err)
	}
	server, _, err := unix.Accept(w.listener)
	if err != nil {
		b.Fatal(err)
	}
	return conversation{fd, server}
}

func (c conversation) exchange(b *testing.B) {
	for _, way := range [][2]int{{c.client, c.server}, {c.server, c.client}} {
		one := []byte{1}
		if _, err := unix.Write(way[0], one); err != nil {
			b.Fatal(err)
		}
		if _, err := unix.Read(way[1], one); err != nil {
			b.Fatal(err)
		}
	}
}

func (c conversation) hangUp(b *testing.B) {
	for _, fd := range []int{c.client, c.server} {
		if err := unix.Close(fd); err != nil {
			b.Fatal(err)
		}
	}
}

// prepare makes this namespace's node. Without the plane or its rules, it tracks
// connections all the same.
func prepare(b *testing.B, plane, rules bool) {
	if plane {
		p, _ := planeOfKernel(b)
		if _, err := p.Apply(b.Context(), manyServices(100), kernel.VerifyNothing); err != nil {
			b.Fatal(err)
		}
		if rules {
			return
		}
		for _, table := range []string{"filter", "nat", "mangle"} {
			command(b, "", "iptables", "-t", table, "-F")
		}
	}
	command(b, "", "iptables", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "NEW,ESTABLISHED", "-j", "ACCEPT")
}

// way is a pod, its node, and a host beyond that which has all backends.
type way struct {
	pod, node, beyond *netns.NS
	listener          int
}

func newWay(b *testing.B) *way {
	w := &way{}
	for _, ns := range []**netns.NS{&w.pod, &w.node, &w.beyond} {
		var err error
		if *ns, err = netns.Anonymous(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := (*ns).Close(); err != nil {
				b.Error(err)
			}
		})
	}
	w.on(b, w.node, func() {
		for name, other := range map[string]*netns.NS{"pod0": w.pod, "out0": w.beyond} {
			cable(b, name, other)
		}
		command(b, "", "sysctl", "-qw", "net.ipv4.ip_forward=1")
		ip(b, "address add 10.244.1.1/24 dev pod0", "address add 192.168.8.1/24 dev out0", "route add 10.128.0.0/10 via 192.168.8.2")
	})
	w.on(b, w.pod, func() { ip(b, "address add 10.244.1.2/24 dev eth0", "route add default via 10.244.1.1") })
	w.on(b, w.beyond, func() {
		ip(b, "address add 192.168.8.2/24 dev eth0", "route add default via 192.168.8.1", "route add local 10.128.0.0/10 dev lo")
		var err error
		if w.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
			err = errors.Join(unix.Bind(w.listener, &unix.SockaddrInet4{Port: 8080}), unix.Listen(w.listener, 16))
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := unix.Close(w.listener); err != nil {
				b.Error(err)
			}
		})
	})
	return w
}

func (w *way) on(b *testing.B, ns *netns.NS, do func()) {
	b.Helper()
	if err := ns.Do(func() error { runtime.LockOSThread(); defer runtime.UnlockOSThread(); do(); return nil }); err != nil {
		b.Fatal(err)
	}
}

// cable is an interface of this namespace whose other end is eth0 of another.
func cable(b *testing.B, name string, other *netns.NS) {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(other.Fd())}
	if err := netlink.LinkAdd(link); err != nil {
		b.Fatal(err)
	}
	ip(b, "link set lo up", "link set "+name+" up")
	if err := other.Do(func() error { ip(b, "link set lo up", "link set eth0 up"); return nil }); err != nil {
		b.Fatal(err)
	}
}

func ip(b *testing.B, commands ...string) {
	b.Helper()
	for _, c := range commands {
		command(b, "", "ip", strings.Fields(c)...)
	}
}
