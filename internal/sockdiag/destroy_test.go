package sockdiag

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// TestDestroy: sockets that can't be had from their process are ended in the
// kernel, of each family.
func TestDestroy(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, proto := range []model.Protocol{model.UDP, model.TCP} {
			testDestroy(t, proto, at)
		}
	}
}

func testDestroy(t *testing.T, proto model.Protocol, at string) {
	var to string
	if proto == model.UDP {
		server, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		to = server.LocalAddr().String()
	} else {
		server, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		to = server.Addr().String()
	}
	conn, err := net.Dial(proto.String(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var cookie uint64
	var cookieErr error
	err = raw.Control(func(fd uintptr) {
		cookie, cookieErr = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
	})
	if err := errors.Join(err, cookieErr); err != nil {
		t.Fatal(err)
	}
	left := map[uint64]bool{cookie: true}
	if err := Destroy(left); err != nil || len(left) > 0 {
		t.Fatalf("%s %s: %v, not found: %d", proto, to, err, len(left))
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("%s %s: the socket says %v", proto, to, err)
	}
}
