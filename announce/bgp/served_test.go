//go:build !race

package bgp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/dataplane/nftables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
)

// The addresses of a Service, and of its endpoint.
var (
	vips      = []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:99::1")}
	endpoints = []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")}
)

// clientNets are a router's addresses in the networks of its clients, whose own ones follow.
func clientNets(number int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("198.51.100.%d/28", 16*number+1)), netip.MustParsePrefix(fmt.Sprintf("2001:db8:c%d::1/64", number)),
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, try func() error) {
	t.Helper()
	for late := range wait.Tries(2 * time.Minute) {
		err := try()
		if err == nil {
			return
		}
		if late {
			t.Fatalf("%s: not within two minutes: %v", what, err)
		}
	}
}

// link connects two namespaces; the first one has the addresses, the other the next ones.
func link(t *testing.T, a *netns.NS, deviceA string, b *netns.NS, deviceB string, addresses []netip.Prefix) {
	t.Helper()
	must(t, a.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: deviceA}, PeerName: deviceB, PeerNamespace: netlink.NsFd(b.Fd())})
	}))
	add := func(device string, of func(netip.Addr) netip.Addr) error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		errs := []error{netlink.LinkSetUp(l)}
		for _, p := range addresses {
			a := &netlink.Addr{IPNet: &net.IPNet{IP: of(p.Addr()).AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
			if p.Addr().Is6() {
				a.Flags = 0x02 // IFA_F_NODAD
			}
			errs = append(errs, netlink.AddrAdd(l, a))
		}
		return errors.Join(errs...)
	}
	must(t, a.Do(func() error { return add(deviceA, func(x netip.Addr) netip.Addr { return x }) }))
	must(t, b.Do(func() error { return add(deviceB, netip.Addr.Next) }))
}

// addRoutes leads prefixes of both families, in this order, to gateways by a device, in a table.
func addRoutes(device string, table int, by []netip.Prefix, prefixes ...string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	var errs []error
	for i, text := range prefixes {
		_, to, err := net.ParseCIDR(text)
		r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: to, Table: table}
		if by != nil {
			r.Gw = by[i].Addr().AsSlice()
		}
		errs = append(errs, err, netlink.RouteAdd(r))
	}
	return errors.Join(errs...)
}

func forwards(t *testing.T, ns *netns.NS) {
	t.Helper()
	must(t, ns.Do(func() error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
	}))
}

// serve has a node translate the Service's addresses to a pod.
func serve(t *testing.T, node, pod *netns.NS) {
	t.Helper()
	forwards(t, node)
	inside := []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24"), netip.MustParsePrefix("fd00:10:244::1/64")}
	link(t, node, "pod", pod, "eth0", inside)
	must(t, pod.Do(func() error { return addRoutes("eth0", 0, inside, "0.0.0.0/0", "::/0") }))
	must(t, node.Do(func() error {
		plane, err := nftables.New(kernel.Options{StateDir: t.TempDir()})
		if err != nil {
			return err
		}
		_, err = plane.Apply(t.Context(), serviceTable(), kernel.VerifyAll)
		return errors.Join(err, plane.Close())
	}))
	must(t, pod.Do(func() error {
		for _, network := range []string{"tcp4", "tcp6"} {
			l, err := net.Listen(network, ":8080")
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte("hello"))
					_ = conn.Close()
				}
			}()
		}
		return nil
	}))
}

func serviceTable() *model.Table {
	e := model.NewTable().Edit()
	for i, vip := range vips {
		id := model.PoolID{Name: "d/web:http", Proto: model.TCP, IPv6: vip.Is6()}
		e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{{Addr: endpoints[i], Port: 8080, Weight: 1}}})
		f := &model.Frontend{Key: model.Key{Addr: vip, Port: 80, Proto: model.TCP}, Name: id.Name, FrontendType: model.LoadBalancerIP}
		for origin := range f.Routes {
			f.Routes[origin] = model.Route{Pool: id, Masquerade: true}
		}
		e.SetFrontend(f)
	}
	return e.Table()
}

// reach asks at an address of the Service.
func reach(t *testing.T, client *netns.NS, vip netip.Addr) error {
	return client.Do(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(vip, 80).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		until, _ := ctx.Deadline()
		if err := conn.SetReadDeadline(until); err != nil {
			return err
		}
		said, err := io.ReadAll(conn)
		if string(said) != "hello" {
			return errors.Join(fmt.Errorf("%q answers", said), err)
		}
		return nil
	})
}

// forgets is an error while a router has a route to an address.
func forgets(t *testing.T, router *netns.NS, vip netip.Addr) error {
	t.Helper()
	return router.Do(func() error {
		routes, err := netlink.RouteList(nil, map[bool]int{true: netlink.FAMILY_V4, false: netlink.FAMILY_V6}[vip.Is4()])
		if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Dst != nil && r.Dst.IP.Equal(vip.AsSlice()) }) {
			return errors.New("it has a route")
		}
		return err
	})
}
