package userspace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// given is a descriptor that changes hands: a listener, or the socket that a
// UDP client has towards its backend.
type given struct {
	Key     model.Key
	Client  netip.AddrPort // of a UDP client; zero for listeners
	Backend netip.AddrPort
	Pool    model.PoolID
}

// remembered is a client with session affinity.
type remembered struct {
	Pool    model.PoolID
	Client  netip.Addr
	Backend netip.AddrPort
	Last    time.Time
}

// descriptorsAtOnce is how many one message carries; the kernel's limit is 253
// (SCM_MAX_FD, net/scm.h).
const descriptorsAtOnce = 200

// handOver gives all listeners and UDP clients to the relay at the other end,
// and stays for the connections that are under way. Packets that come meanwhile
// wait in the sockets' queues.
func (s *server) handOver(l *link) error {
	s.asking.Lock()
	list, files, err := s.relay.retire()
	s.asking.Unlock()
	defer func() {
		for _, f := range files {
			discard(f.Close())
		}
	}()
	if err != nil {
		return err
	}
	if err := l.encoder.Encode(reply{
		Given: list, Memory: s.relay.balancer.memories(), Delta: s.relay.current().Delta(nil), Waiting: true,
	}); err != nil {
		return err
	}
	// The other end must have read all of the JSON before descriptors come.
	var request request
	if err := l.decoder.Decode(&request); err != nil {
		return err
	}
	for len(files) > 0 {
		n := min(len(files), descriptorsAtOnce)
		fds := make([]int, n)
		for i, f := range files[:n] {
			fds[i] = int(f.Fd())
		}
		if _, _, err := l.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil); err != nil {
			return fmt.Errorf("send sockets: %w", err)
		}
		for _, f := range files[:n] {
			discard(f.Close())
		}
		files = files[n:]
	}
	discard(s.listener.Close())
	go func() { s.relay.flows.wait(); s.stop() }()
	return s.follow(l)
}

// follow lets the successor tell what changes.
func (s *server) follow(l *link) error {
	for {
		var r request
		if err := l.decoder.Decode(&r); err != nil {
			return nil // the successor has ended; connections go on
		}
		if err := l.encoder.Encode(s.do(r)); err != nil {
			return nil
		}
		if r.Op == opExit {
			s.stop()
			return nil
		}
	}
}

// retire ends reading at all listeners and UDP clients and duplicates them.
// TCP connections stay.
func (r *relay) retire() (list []given, files []*os.File, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retired = true
	for k, s := range r.sockets {
		s.pause()
		f, err := s.file()
		if err != nil {
			return nil, files, fmt.Errorf("duplicate %s: %w", k, err)
		}
		list, files = append(list, given{Key: k}), append(files, f)
		if udp, ok := s.(*udpSocket); ok {
			clients, clientFiles, err := udp.retire()
			list, files = append(list, clients...), append(files, clientFiles...)
			if err != nil {
				return nil, files, err
			}
		}
		s.close() // the duplicate goes on listening
	}
	return list, files, nil
}

// retire gives the clients of a UDP listener away.
func (s *udpSocket) retire() (list []given, files []*os.File, err error) {
	s.mu.Lock()
	var all []*session
	for _, x := range s.sessions {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		f, err := x.conn.File()
		if errors.Is(err, net.ErrClosed) {
			continue // it ended just now
		}
		if err != nil {
			return list, files, fmt.Errorf("duplicate client %s of %s: %w", x.client, s.key, err)
		}
		list = append(list, given{Key: x.key, Client: x.client, Backend: x.backend, Pool: x.pool})
		files = append(files, f)
		x.end()
	}
	return list, files, nil
}

// take asks the relay that has the socket for all that can be given.
func (s *server) take(socket string) error {
	l, _, err := connect(socket)
	if notRunning(err) {
		return nil // it has ended meanwhile: nothing to take
	}
	if err != nil {
		return err
	}
	offer, err := l.ask(request{Op: opHandover})
	if err != nil {
		return errors.Join(fmt.Errorf("take over: %w", err), l.conn.Close())
	}
	if err := l.encoder.Encode(request{}); err != nil {
		return errors.Join(fmt.Errorf("take over: %w", err), l.conn.Close())
	}
	files, err := receiveFiles(l.conn, len(offer.Given))
	if err != nil {
		return errors.Join(fmt.Errorf("take over: %w", err), l.conn.Close())
	}
	s.forward = append(s.forward, l)
	s.relay.balancer.remember(offer.Memory)
	return s.relay.inherit(offer, files)
}

// receiveFiles reads as many descriptors as were announced.
func receiveFiles(conn *net.UnixConn, n int) ([]*os.File, error) {
	var files []*os.File
	oob := make([]byte, unix.CmsgSpace(4*descriptorsAtOnce))
	for len(files) < n {
		_, size, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
		if err != nil {
			return nil, fmt.Errorf("receive sockets: %w", err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:size])
		if err != nil {
			return nil, fmt.Errorf("receive sockets: %w", err)
		}
		if len(messages) == 0 {
			return nil, fmt.Errorf("receive sockets: %d of %d came", len(files), n)
		}
		for _, m := range messages {
			fds, err := unix.ParseUnixRights(&m)
			if err != nil {
				return nil, fmt.Errorf("receive sockets: %w", err)
			}
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "inherited"))
			}
		}
	}
	return files, nil
}

// inherit opens what another relay had open, and goes on with its UDP clients.
func (r *relay) inherit(offer reply, files []*os.File) error {
	type client struct {
		given
		file *os.File
	}
	var clients []client
	for i, g := range offer.Given {
		if g.Client.IsValid() {
			clients = append(clients, client{g, files[i]})
			continue
		}
		r.inherited[g.Key] = files[i]
	}
	if err := r.apply(offer.Delta); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range clients {
		packets, err := net.FilePacketConn(c.file)
		discard(c.file.Close())
		if err != nil {
			return fmt.Errorf("go on with client %s of %s: %w", c.Client, c.Key, err)
		}
		if s, ok := r.sockets[c.Key].(*udpSocket); ok {
			s.begin(&flow{key: c.Key, pool: c.Pool, backend: c.Backend, client: c.Client}, packets.(*net.UDPConn))
		}
	}
	return nil
}

// memories lists the clients that belong somewhere.
func (b *balancer) memories() []remembered {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []remembered
	for id, m := range b.pools {
		for client, a := range m.clients {
			list = append(list, remembered{id, client, a.backend, a.last})
		}
	}
	return list
}

func (b *balancer) remember(list []remembered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range list {
		b.memory(x.Pool).clients[x.Client] = &affinity{backend: x.Backend, last: x.Last}
	}
}

// current is the table that is forwarded.
func (r *relay) current() *model.Table {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.table
}
