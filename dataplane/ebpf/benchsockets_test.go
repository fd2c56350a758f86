package ebpf

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// stock are sockets of each way, made beforehand: a process changes its cgroup too
// slowly to do it between exchanges.
type stock struct {
	kind  int
	sites map[string]*site // by way
	fds   map[string][]int
}

// take has a socket of a way's, in the client's pod.
func (s *stock) take(b *testing.B, way string) int {
	b.Helper()
	if len(s.fds[way]) == 0 {
		s.fill(b)
	}
	last := len(s.fds[way]) - 1
	fd := s.fds[way][last]
	s.fds[way] = s.fds[way][:last]
	return fd
}

// fill makes sockets, those of ways on one node in turns. All are in the node's
// cgroup but those that the interfaces have to serve.
func (s *stock) fill(b *testing.B) {
	b.Helper()
	for _, at := range []*site{s.sites[bare], s.sites[empty], s.sites[direct]} {
		inCgroup(b, at.cgroup, func() {
			s.make(b, at, func(way string) bool { return s.sites[way] == at && way != byTC })
		})
	}
	s.make(b, s.sites[byTC], func(way string) bool { return way == byTC })
}

// make makes sockets of some ways in the client's pod.
func (s *stock) make(b *testing.B, at *site, wanted func(way string) bool) {
	b.Helper()
	const atOnce = 32
	check(b, at.client.Do(func() error {
		for n := 0; n < atOnce*len(waysInTurn); n++ {
			way := waysInTurn[n%len(waysInTurn)]
			if !wanted(way) || len(s.fds[way]) >= atOnce {
				continue
			}
			fd, err := newSocket(s.kind)
			if err != nil {
				return err
			}
			s.fds[way] = append(s.fds[way], fd)
		}
		return nil
	}))
}

func (s *stock) close(b *testing.B) {
	b.Helper()
	for _, list := range s.fds {
		for _, fd := range list {
			check(b, unix.Close(fd))
		}
	}
	clear(s.fds)
}

// newSocket makes a socket; a stream is reset when it's closed, so that ports don't
// run out.
func newSocket(kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	if kind != unix.SOCK_STREAM {
		return fd, nil
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, fmt.Errorf("set linger: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return 0, fmt.Errorf("set no delay: %w", err)
	}
	return fd, nil
}

func connectTo(fd int, to netip.AddrPort) error {
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	return nil
}

// pingPong sends a byte and waits for it to come back.
func pingPong(fd int) error {
	b := []byte{1}
	if _, err := unix.Write(fd, b); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if _, err := unix.Read(fd, b); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	return nil
}

// askAndHear sends a byte to an address and waits for what comes back from there.
func askAndHear(fd int, to netip.AddrPort) error {
	at := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	if err := unix.Sendto(fd, []byte{1}, 0, at); err != nil {
		return fmt.Errorf("send to %s: %w", to, err)
	}
	_, from, err := unix.Recvfrom(fd, make([]byte, 1), 0)
	if err != nil {
		return fmt.Errorf("hear from %s: %w", to, err)
	}
	// Of several Services with one endpoint the socket hears from any.
	if who, is := from.(*unix.SockaddrInet4); !is || (who.Port == 80) != (at.Port == 80) {
		return fmt.Errorf("hear from %s: it was %v", to, from)
	}
	return nil
}
