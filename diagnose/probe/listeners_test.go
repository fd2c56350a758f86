package probe

import (
	"net"
	"net/netip"
	"testing"
)

// TestAtLoopback finds a real listener of this process, at the addresses that this
// network namespace has.
func TestAtLoopback(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err) // a machine without IPv6
			continue
		}
		at := netip.MustParseAddrPort(l.Addr().String())
		if got := (Prober{}).AtLoopback(at); got != at {
			t.Errorf("listening at %s, found %s", at, got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := (Prober{}).AtLoopback(at); got.IsValid() {
			t.Errorf("nobody listens at %s, found %s", at, got)
		}
	}
	if got := (Prober{}).AtLoopback(netip.MustParseAddrPort("203.0.113.9:80")); got.IsValid() {
		t.Errorf("an address that this machine hasn't: %s", got)
	}
}
