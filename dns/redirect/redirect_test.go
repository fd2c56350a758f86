package redirect

import (
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

	"github.com/fairway-net/fairway/test/netnstest"
	"github.com/fairway-net/fairway/test/wait"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
)

const waitTimeout = 30 * time.Second

// soon is long enough for an answer, if there is one, in most cases.
const soon = 300 * time.Millisecond

var services = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")}

// clients may ask: the pod, but not from its other addresses.
var clients = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:10:244::/64")}

// rig is a node with a pod. Whatever asks at the node's own addresses is told
// where it asks from.
type rig struct {
	node, pod *netns.NS
	lease     *Lease
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{node: namespace(t), pod: namespace(t)}
	do(t, r.node, func() (err error) { r.lease, err = Open(services, clients); return err })
	t.Cleanup(func() {
		if err := r.lease.Close(); err != nil {
			t.Error(err)
		}
	})
	do(t, r.node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "pod"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(r.pod.Fd())})
	})
	configure(t, r.node, "pod", "10.244.0.1/24", "fd00:10:244::1/64")
	configure(t, r.pod, "eth0", "10.244.0.2/24", "fd00:10:244::2/64")
	do(t, r.pod, func() error {
		for _, via := range []string{"10.244.0.1", "fd00:10:244::1"} {
			if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)}); err != nil {
				return err
			}
		}
		return nil
	})
	for ns, address := range map[*netns.NS]string{r.node: "fd00:10:244::1", r.pod: "fd00:10:244::2"} {
		awaitAddress(t, ns, address)
	}
	for _, a := range r.lease.Addresses() {
		r.serve(t, netip.AddrPortFrom(a, 53))
	}
	return r
}

// awaitAddress waits until an address is there, which it is a while after it is added.
func awaitAddress(t *testing.T, ns *netns.NS, address string) {
	t.Helper()
	eventually(t, address+" is there", func() (there bool) {
		do(t, ns, func() error {
			routes, err := netlink.RouteGet(net.ParseIP(address))
			there = err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL
			return nil
		})
		return there
	})
}

func namespace(t *testing.T) *netns.NS {
	t.Helper()
	ns := netnstest.New(t)
	configure(t, ns, "lo")
	return ns
}

func configure(t *testing.T, ns *netns.NS, name string, addrs ...string) {
	t.Helper()
	do(t, ns, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range addrs {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(link, a); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	})
}

func do(t *testing.T, ns *netns.NS, fn func() error) {
	t.Helper()
	if err := ns.Do(fn); err != nil {
		t.Fatal(err)
	}
}

// serve tells everybody who asks where they ask from.
func (r *rig) serve(t *testing.T, at netip.AddrPort) {
	t.Helper()
	var packets *net.UDPConn
	var stream *net.TCPListener
	do(t, r.node, func() (err error) {
		if packets, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err == nil {
			stream, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		}
		return err
	})
	t.Cleanup(func() {
		if err := errors.Join(packets.Close(), stream.Close()); err != nil {
			t.Error(err)
		}
	})
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := packets.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // closed
			}
			if _, err := packets.WriteToUDPAddrPort([]byte(from.Addr().String()), from); err != nil {
				t.Error(err)
			}
		}
	}()
	go func() {
		for {
			conn, err := stream.Accept()
			if err != nil {
				return // closed
			}
			_, err = io.WriteString(conn, conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().String())
			if err := errors.Join(err, conn.Close()); err != nil {
				t.Error(err)
			}
		}
	}()
}

// ask asks at the DNS Service's address from a namespace, and returns what the
// asker is taken for. Sockets are connected, so the answer must be from there.
func ask(ns *netns.NS, network string, service netip.Addr, within time.Duration) (string, error) {
	return askFrom(ns, netip.Addr{}, network, service, within)
}

// askFrom is ask from an address of the namespace.
func askFrom(ns *netns.NS, source netip.Addr, network string, service netip.Addr, within time.Duration) (string, error) {
	var conn net.Conn
	err := ns.Do(func() (err error) {
		d := net.Dialer{Timeout: within}
		switch from := netip.AddrPortFrom(source, 0); {
		case !source.IsValid():
		case network == "udp":
			d.LocalAddr = net.UDPAddrFromAddrPort(from)
		default:
			d.LocalAddr = net.TCPAddrFromAddrPort(from)
		}
		conn, err = d.DialContext(context.Background(), network, netip.AddrPortFrom(service, 53).String())
		return err
	})
	if err != nil {
		return "", err
	}
	buf := make([]byte, 64)
	n := 0
	if err = conn.SetDeadline(time.Now().Add(within)); err == nil && network == "udp" {
		_, err = conn.Write([]byte("?"))
	}
	if err == nil {
		n, err = conn.Read(buf)
	}
	return string(buf[:n]), errors.Join(err, conn.Close())
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for late := range wait.Tries(waitTimeout) {
		if ok() {
			break
		}
		if late {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// TestLease asks from a pod and from the node, which has no other route to the
// Service, while the lease runs, and after it has ended by itself or at once.
func TestLease(t *testing.T) { testLease(t) }

func testLease(t *testing.T) {
	t.Helper()
	r := newRig(t)
	want := map[*netns.NS][]string{r.pod: {"10.244.0.2", "fd00:10:244::2"}, r.node: {"127.0.0.1", ""}}
	all := func(within time.Duration, check func(what, got, want string, err error)) {
		for ns, sources := range want {
			for i, service := range services {
				for _, network := range []string{"udp", "tcp"} {
					if ns == r.node && service.Is6() {
						continue // IPv6 has no table that comes last
					}
					if within == waitTimeout {
						r.renew(t)
					}
					got, err := ask(ns, network, service, within)
					check(fmt.Sprintf("%s to %s for %s", network, service, sources[i]), got, sources[i], err)
				}
			}
		}
	}
	refused := func(what, got, _ string, err error) {
		if err == nil {
			t.Errorf("%s: answered (%q) without a lease", what, got)
		}
	}
	all(soon, refused)
	for _, end := range []func(){
		func() { do(t, r.node, r.lease.End) },
		func() {
			time.Sleep(Term) // only then does no answer say that it has ended, and not that it is slow
			eventually(t, "the lease ends by itself", func() bool { _, err := ask(r.pod, "udp", services[0], soon); return err != nil })
			eventually(t, "the lease of IPv6, too", func() bool { _, err := ask(r.pod, "udp", services[1], soon); return err != nil })
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		renewing := r.keep(t, ctx)
		eventually(t, "the lease has begun", func() bool {
			got, err := ask(r.pod, "udp", services[0], soon)
			return err == nil && got == "10.244.0.2"
		})
		all(waitTimeout, func(what, got, want string, err error) {
			if err != nil || got != want {
				t.Errorf("%s: got %q, %v", what, got, err)
			}
		})
		cancel()
		<-renewing
		end()
		all(soon, refused)
	}
	do(t, r.node, func() error {
		tracked, err := os.ReadFile("/proc/thread-self/net/nf_conntrack")
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		for line := range strings.Lines(string(tracked)) {
			if strings.Contains(line, "169.254.53.53") {
				t.Errorf("tracked: %s", line)
			}
		}
		return err
	})
	leftovers := func(want int) {
		do(t, r.node, func() error {
			left, err := Leftovers()
			if len(left) != want {
				t.Errorf("left over: %v, want %d", left, want)
			}
			return err
		})
	}
	leftovers(1)
	do(t, r.node, Cleanup)
	leftovers(0)
	do(t, r.node, Cleanup)
	do(t, r.node, func() error {
		if _, err := netlink.LinkByName(Interface); !isMissing(err) {
			t.Errorf("%s is still there (%v)", Interface, err)
		}
		left, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: kernel.RouteProtocol}, netlink.RT_FILTER_PROTOCOL)
		if len(left) > 0 {
			t.Errorf("still there: %v", left)
		}
		return err
	})
}

// renew renews the lease now: on a busy machine, who does so by the clock may be
// late, and a question that comes after the lease's end has no answer.
func (r *rig) renew(t *testing.T) {
	t.Helper()
	if err := r.lease.Renew(); err != nil {
		t.Error(err)
	}
}

// keep renews the lease until ctx is done; the channel says when it has ended.
func (r *rig) keep(t *testing.T, ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range wait.Every(ctx, Term/5) { // as an agent does
			r.renew(t)
		}
	}()
	return done
}

// TestOthersCantRenew checks that another user's process can't keep questions
// with a server that is gone.
func TestOthersCantRenew(t *testing.T) {
	r := newRig(t)
	renewed := func(user uint32) (got string, err error) {
		cmd := exec.Command("bash", "-c", "exec 3<>/dev/udp/169.254.53.53/9; echo >&3; exec 4<>/dev/udp/169.254.53.53/9; echo >&4")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		var out strings.Builder
		cmd.Stderr = &out
		if err := r.node.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		return ask(r.pod, "udp", services[0], soon)
	}
	for range 2 {
		if got, err := renewed(65534); err == nil {
			t.Errorf("renewed by another user: answered %q", got)
		}
		// The lease may be over before the question comes, on a busy machine.
		eventually(t, "renewed by root", func() bool { _, err := renewed(0); return err == nil })
		do(t, r.node, r.lease.End)
	}
}

// TestRepair: after `nft flush ruleset`, and after anything was removed, it is all
// made anew; where nothing is missing, nothing is done. The addresses are of the link
// alone: the kernel would masquerade with others.
func TestRepair(t *testing.T) {
	r := newRig(t)
	repair := func(want bool) {
		t.Helper()
		do(t, r.node, func() error {
			repaired, err := r.lease.Repair()
			if err == nil && repaired != want {
				err = fmt.Errorf("repaired %v, want %v", repaired, want)
			}
			return err
		})
	}
	repair(false)
	do(t, r.node, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.FlushRuleset()
		return conn.Flush()
	})
	repair(true)
	repair(false)
	for _, remove := range [][]string{
		{"nft", "flush", "chain", "inet", tableName, asked},
		{"nft", "flush", "chain", "inet", tableName, answering},
		{"ip", "route", "flush", "table", "default"},
		{"ip", "address", "del", firstLocal4.String() + "/32", "dev", Interface},
		{"ip", "link", "set", Interface, "down"},
		{"ip", "link", "del", Interface},
	} {
		do(t, r.node, func() error {
			out, err := exec.Command(remove[0], remove[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%v: %w: %s", remove, err, out)
			}
			return nil
		})
		repair(true)
		repair(false)
	}
	do(t, r.node, Cleanup)
	repair(true)
	do(t, r.node, func() error {
		link, err := netlink.LinkByName(Interface)
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		for _, a := range addresses {
			if a.Scope != int(netlink.SCOPE_LINK) {
				err = fmt.Errorf("address %s has scope %d", a.IPNet, a.Scope)
			}
		}
		return err
	})
}

// TestStrangers: who isn't a client gets no answer at the Service's address, where nothing
// else limits who may ask.
func TestStrangers(t *testing.T) {
	r := newRig(t)
	strangers := []string{"192.0.2.2", "2001:db8::2"}
	for i, bits := range []string{"/32", "/128"} {
		configure(t, r.pod, "eth0", strangers[i]+bits)
		awaitAddress(t, r.pod, strangers[i])
		do(t, r.node, func() error {
			link, err := netlink.LinkByName("pod")
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: single(netip.MustParseAddr(strangers[i]))})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	renewing := r.keep(t, ctx)
	defer func() { cancel(); <-renewing }()
	for i, service := range services {
		for _, transport := range []string{"udp", "tcp"} {
			eventually(t, "a client is answered at "+service.String(), func() bool { _, err := ask(r.pod, transport, service, soon); return err == nil })
			if got, err := askFrom(r.pod, netip.MustParseAddr(strangers[i]), transport, service, 5*soon); err == nil {
				t.Errorf("%s at %s: a stranger is answered %q", transport, service, got)
			}
		}
		eventually(t, "the node answers itself", func() bool { _, err := ask(r.node, "udp", r.lease.Addresses()[i], soon); return err == nil })
	}
}
