package cmd

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestPortOwner: this process has the ports that it listens on, at the address or at all.
func TestPortOwner(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close() //nolint:errcheck // of a test
	udp, err := net.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close() //nolint:errcheck // of a test
	stream := netip.MustParseAddrPort(tcp.Addr().String())
	datagram := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(udp.LocalAddr().(*net.UDPAddr).Port))
	for _, c := range []struct {
		network string
		at      netip.AddrPort
		found   bool
	}{
		{"tcp", stream, true},
		{"tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), stream.Port()), true},
		{"tcp", netip.AddrPortFrom(netip.MustParseAddr("127.9.9.9"), stream.Port()), false},
		{"udp", datagram, true},
	} {
		got := portOwner(c.network, c.at)
		if found := strings.HasSuffix(got, fmt.Sprintf("(process %d)", os.Getpid())); found != c.found {
			t.Errorf("%s %s: %q", c.network, c.at, got)
		}
	}
}
