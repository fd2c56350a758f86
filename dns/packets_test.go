package dns

import (
	"errors"
	"net"
	"testing"
)

// TestAnswerToStrangers: an answer goes to who asked. An address from elsewhere, of
// whatever type, is an error: it was once taken for a larger one in memory.
func TestAnswerToStrangers(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &packets{UDPConn: conn}
	for _, to := range []net.Addr{conn.LocalAddr(), &net.TCPAddr{}, nil} {
		if n, err := c.WriteTo([]byte("answer"), to); n != 0 || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("to %v: %d, %v", to, n, err)
		}
	}
	if n, err := c.WriteTo([]byte("answer"), &origin{UDPAddr: conn.LocalAddr().(*net.UDPAddr)}); n != 6 || err != nil {
		t.Errorf("to who asked: %d, %v", n, err)
	}
}
