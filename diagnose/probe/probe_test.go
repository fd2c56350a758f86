package probe

import (
	"net"
	"net/netip"
	"testing"
)

func TestConnect(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Skip("this machine lacks the family:", err)
		}
		to := netip.MustParseAddrPort(l.Addr().String())
		if got := (Prober{}).Connect(t.Context(), to); got != "ok" {
			t.Errorf("%s: %s", to, got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := (Prober{}).Connect(t.Context(), to); got != "refused" {
			t.Errorf("%s, closed: %s", to, got)
		}
	}
}
