package probe

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

func TestParseResolver(t *testing.T) {
	r := parseResolver([]byte("# a comment\nsearch first\nnameserver 10.96.0.10\nnameserver fd00::a\nsearch default.svc.cluster.local svc.cluster.local.\noptions ndots:5\n"))
	if !slices.Equal(r.Servers, []string{"10.96.0.10", "fd00::a"}) || !slices.Equal(r.Search, []string{"default.svc.cluster.local", "svc.cluster.local"}) {
		t.Errorf("%+v", r)
	}
}

// TestFromAnotherNamespace connects, in both families, from the namespace that has an
// address, and pings in it.
func TestFromAnotherNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close() //nolint:errcheck // of a test
	for _, text := range []string{"192.0.2.77", "2001:db8:7::77"} {
		a := netip.MustParseAddr(text)
		err := ns.Do(func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(lo); err != nil {
				return err
			}
			address := netlink.NewIPNet(a.AsSlice())
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: address, Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
			if !has(a) {
				t.Errorf("%s is not found", a)
			}
			listener, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
			if err != nil {
				return err
			}
			port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
			inTime(t, "connect to "+text, func() string { return Prober{}.Connect(t.Context(), netip.AddrPortFrom(a, port)) })
			inTime(t, "ping "+text, func() string { return Prober{}.Echo(t.Context(), netip.Addr{}, a, false) })
			inTime(t, "ping at full length "+text, func() string { return Prober{}.Echo(t.Context(), netip.Addr{}, a, true) })
			return listener.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := (Prober{}).ConnectFrom(t.Context(), netip.MustParseAddr("203.0.113.250"), netip.MustParseAddrPort("203.0.113.250:1")); got != "" {
		t.Errorf("from an address that nobody has: %q", got)
	}
}

// inTime tries until it is ok: a probe has a second, in which a loaded machine may not
// get around to it.
func inTime(t *testing.T, what string, try func() string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		got := try()
		if got == "ok" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: %s", what, got)
			return
		}
	}
}
