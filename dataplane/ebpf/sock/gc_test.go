package sock

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/sockdiag"
	"github.com/fairway-net/fairway/model"
)

// TestReconnect reconnects UDP sockets of each family to frontends of each
// family that such a socket can have.
func TestReconnect(t *testing.T) {
	for _, test := range []struct {
		name   string
		family int
		listen string
	}{
		{"an IPv4 frontend", unix.AF_INET, "127.0.0.1:0"},
		{"an IPv6 frontend", unix.AF_INET6, "[::1]:0"},
		{"an IPv4 frontend and an IPv6 socket", unix.AF_INET6, "127.0.0.1:0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, err := net.ListenPacket("udp", test.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			to := server.LocalAddr().(*net.UDPAddr).AddrPort()
			fd, err := unix.Socket(test.family, unix.SOCK_DGRAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := reconnect(fd, model.Key{Addr: to.Addr(), Port: to.Port(), Proto: model.UDP}); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(fd, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, _, err := server.ReadFrom(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReconnectOtherFamily holds that an IPv4 socket, which can't be connected
// to an IPv6 frontend, gives an error and nothing worse.
func TestReconnectOtherFamily(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	err = reconnect(fd, model.Key{Addr: netip.IPv6Loopback(), Port: 53, Proto: model.UDP})
	if !errors.Is(err, sockdiag.ErrNotDone) {
		t.Errorf("reconnect: %v, expected %v", err, sockdiag.ErrNotDone)
	}
}
