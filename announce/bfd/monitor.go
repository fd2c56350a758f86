package bfd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// The ports of RFC 5881 and 5883.
const (
	portOneHop   = 3784
	portMultiHop = 4784
)

// Monitor watches the ways to routers. Nothing runs, and no port is open, as long
// as it has no sessions.
type Monitor struct {
	log     *slog.Logger
	changed func()
	broken  func(peer, why string)

	mu       sync.Mutex
	sessions map[Session]*running
	sockets  map[socket]net.PacketConn
}

// socket is what sessions share to receive.
type socket struct {
	v6, multiHop bool
	vrf          string
}

func (r *running) socket() socket { return socket{r.Address.Is6(), r.MultiHop, r.VRF} }

// New returns a monitor. Changed is called after each change of what Status
// returns, and broken when the way to a peer's router that had been good is not
// any more. Neither must block.
func New(changed func(), broken func(peer, why string), log *slog.Logger) *Monitor {
	return &Monitor{log: log, changed: changed, broken: broken, sessions: map[Session]*running{}, sockets: map[socket]net.PacketConn{}}
}

// Set says what to watch. Sessions that don't change go on.
func (m *Monitor) Set(sessions []Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, r := range m.sessions {
		if !slices.Contains(sessions, s) {
			r.cancel()
			delete(m.sessions, s)
		}
	}
	for _, s := range sessions {
		if m.sessions[s] == nil {
			m.sessions[s] = m.start(s)
		}
	}
	m.closeUnused()
}

func (m *Monitor) start(s Session) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{
		Session: s, monitor: m, log: m.log.With("peer", s.Peer, "address", s.Address.String()), packets: make(chan packet, 16),
		cancel: cancel, done: make(chan struct{}), machine: newMachine(s.Settings, m.discriminator(s)),
		status: Status{Session: s, State: Down, Since: time.Now()},
	}
	go r.run(ctx)
	return r
}

// discriminator is the same after a restart, by which a router that noticed
// nothing goes on with the session.
func (m *Monitor) discriminator(s Session) uint32 {
	sum := sha256.Sum256(fmt.Append(nil, s.Peer, s.Address, s.Source, s.VRF, s.MultiHop))
	d := max(1, binary.BigEndian.Uint32(sum[:]))
	for m.has(d) {
		d = max(1, d+1)
	}
	return d
}

func (m *Monitor) has(discriminator uint32) bool {
	for _, r := range m.sessions {
		if r.machine.local == discriminator {
			return true
		}
	}
	return false
}

// Status lists the sessions, by peer.
func (m *Monitor) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Status
	for _, r := range m.sessions {
		list = append(list, r.current())
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), a.Address.Compare(b.Address))
	})
	return list
}

// Close ends all sessions and waits until routers are told.
func (m *Monitor) Close() {
	m.mu.Lock()
	ended := m.sessions
	m.sessions = map[Session]*running{}
	m.mu.Unlock()
	for _, r := range ended {
		r.cancel()
	}
	for _, r := range ended {
		<-r.done
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeUnused()
}

func (m *Monitor) closeUnused() {
	for key, conn := range m.sockets {
		used := false
		for s := range m.sessions {
			used = used || key == socket{s.Address.Is6(), s.MultiHop, s.VRF}
		}
		if !used {
			conn.Close()
			delete(m.sockets, key)
		}
	}
}

// listen opens the socket of a session unless it is open.
func (m *Monitor) listen(key socket) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sockets[key] != nil {
		return nil
	}
	network, port := "udp4", portOneHop
	if key.v6 {
		network = "udp6"
	}
	if key.multiHop {
		port = portMultiHop
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return bindDevice(c, key.vrf) }}
	conn, err := config.ListenPacket(context.Background(), network, fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("receive BFD packets (is another BFD program on the node?): %w", err)
	}
	read, err := reader(conn, key.v6)
	if err != nil {
		return errors.Join(fmt.Errorf("receive BFD packets: %w", err), conn.Close())
	}
	m.sockets[key] = conn
	go m.receive(key, read)
	return nil
}

// reader returns a function that reads a packet with its TTL.
func reader(conn net.PacketConn, v6 bool) (func([]byte) (n, ttl int, from net.Addr, err error), error) {
	if v6 {
		p := ipv6.NewPacketConn(conn)
		return func(b []byte) (int, int, net.Addr, error) {
			n, control, from, err := p.ReadFrom(b)
			if control == nil {
				return n, 0, from, err
			}
			return n, control.HopLimit, from, err
		}, p.SetControlMessage(ipv6.FlagHopLimit, true)
	}
	p := ipv4.NewPacketConn(conn)
	return func(b []byte) (int, int, net.Addr, error) {
		n, control, from, err := p.ReadFrom(b)
		if control == nil {
			return n, 0, from, err
		}
		return n, control.TTL, from, err
	}, p.SetControlMessage(ipv4.FlagTTL, true)
}

// receive hands packets to their sessions until the socket is closed.
func (m *Monitor) receive(key socket, read func([]byte) (int, int, net.Addr, error)) {
	buffer := make([]byte, 1500)
	for {
		n, ttl, from, err := read(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		source, ok := from.(*net.UDPAddr)
		if err != nil || !ok {
			continue
		}
		if p, err := parse(buffer[:n]); err == nil {
			m.deliver(key, source.AddrPort().Addr().Unmap(), ttl, p)
		}
	}
}

// deliver hands a packet to its session, if its TTL shows that it comes from no
// further than it may (RFC 5881, 5; RFC 5883, 3). One for another session is dropped here: many of
// them would leave no room for the router's.
func (m *Monitor) deliver(key socket, from netip.Addr, ttl int, p packet) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.sessions {
		least := 255
		if r.MultiHop {
			least = int(r.Settings.MinimumTTL)
		}
		if r.socket() != key || r.Address.WithZone("") != from.WithZone("") || ttl < least || p.Your != 0 && p.Your != r.machine.local {
			continue
		}
		r.mu.Lock()
		r.status.Counts.Received++
		r.mu.Unlock()
		select {
		case r.packets <- p:
		default: // the session is behind; the next packet says the same
		}
	}
}

// sourcePort is in the range that RFC 5881 asks for, and stays over restarts.
func sourcePort(discriminator uint32) int { return 49152 + int(discriminator%16384) }

// dial opens the socket that a session sends by.
func dial(s *Session, port int) (net.Conn, error) {
	to := portOneHop
	if s.MultiHop {
		to = portMultiHop
	}
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return errors.Join(bindDevice(c, s.VRF), setTTL(c, s.Address.Is6()))
	}}
	remote := netip.AddrPortFrom(s.Address, uint16(to)).String()
	var err error
	const tries = 16 // other programs have ports of the range too
	for i := range tries {
		dialer.LocalAddr = &net.UDPAddr{IP: s.Source.AsSlice(), Port: 49152 + (port-49152+i*997)%16384}
		var conn net.Conn
		if conn, err = dialer.Dial("udp", remote); err == nil {
			return conn, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("open socket for BFD: %w", err)
}

func bindDevice(c syscall.RawConn, device string) error {
	if device == "" {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, device)
	})
	return errors.Join(err, failed)
}

func setTTL(c syscall.RawConn, v6 bool) error {
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, 255) })
	return errors.Join(err, failed)
}

// isRefusal reports whether a socket says that a packet before found nobody.
func isRefusal(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}
