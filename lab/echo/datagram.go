package echo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// serveUDP answers each datagram, until the socket is closed.
func (s *Server) serveUDP(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		n, client, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.touch()
		// A datagram that can't be sent is lost, as datagrams are.
		_, _ = c.WriteTo(s.answer(string(buf[:n]), client), client)
	}
}

// answer answers a datagram: who this is and whom it sees, or what agnhost's
// netexec says to the word that it holds.
func (s *Server) answer(question string, client net.Addr) []byte {
	word, rest, _ := strings.Cut(strings.TrimSpace(question), " ")
	switch strings.ToLower(word) {
	case "hostname":
		return []byte(s.name)
	case "clientip":
		return []byte(client.String())
	case "echo":
		return []byte(rest)
	}
	return fmt.Appendf(nil, "%s %s\n", s.name, client)
}

// listenSCTP opens a one-to-one style SCTP socket (RFC 6458, section 4), which
// accepts and reads like a TCP one: Go's net package takes it for that. A kernel
// without SCTP says EPROTONOSUPPORT.
func listenSCTP(port uint16) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "sctp")
	defer f.Close()
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := KeepToOnePath(fd); err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(f)
}
