package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/bufsize"
	"golang.org/x/sys/unix"
)

// listeners serve one block of a Corefile in CoreDNS' place: with CoreDNS' own
// servers, but UDP sockets that answer directly what they can.
type listeners struct {
	config *dnsserver.Config
	hosts  []string
	index  *Index
	log    *slog.Logger

	servers []*dnsserver.Server
	packets []*packets
	sockets []io.Closer
	serving sync.WaitGroup
	stopped sync.Once
	err     error
}

// takeOver keeps CoreDNS from listening for a block.
func takeOver(config *dnsserver.Config, index *Index, log *slog.Logger) *listeners {
	l := &listeners{config: config, hosts: config.ListenHosts, index: index, log: log}
	config.ListenHosts = nil
	return l
}

// compile puts the block's plugins together, as CoreDNS would now.
func (l *listeners) compile() error {
	for _, host := range l.hosts {
		addr, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, l.config.Port))
		if err != nil {
			return fmt.Errorf("listen address: %w", err)
		}
		for range max(1, l.config.NumSockets) {
			server, err := dnsserver.NewServer(l.config.Transport+"://"+addr.String(), []*dnsserver.Config{l.config})
			if err != nil {
				return err
			}
			l.servers = append(l.servers, server)
		}
	}
	return nil
}

// start listens everywhere, and serves.
func (l *listeners) start() error {
	for _, s := range l.servers {
		if err := l.serve(s); err != nil {
			return errors.Join(fmt.Errorf("listen at %s: %w", s.Addr, err), l.stop())
		}
	}
	return nil
}

func (l *listeners) serve(s *dnsserver.Server) error {
	lc := net.ListenConfig{Control: shareAddress}
	_, at, _ := strings.Cut(s.Addr, "://")
	stream, err := lc.Listen(context.Background(), "tcp", at)
	if err != nil {
		return err
	}
	conn, err := lc.ListenPacket(context.Background(), "udp", at)
	if err != nil {
		return errors.Join(err, stream.Close())
	}
	if limit, ok := l.direct(); ok {
		var count *counters
		if l.config.Handler("prometheus") != nil {
			count = newCounters(s.Addr)
		}
		p, err := newPackets(conn.(*net.UDPConn), l.index, count, limit)
		if err != nil {
			return errors.Join(err, stream.Close(), conn.Close())
		}
		l.packets = append(l.packets, p)
		conn = p
	}
	l.sockets = append(l.sockets, stream, conn)
	for _, serve := range []func() error{
		func() error { return s.Serve(stream) }, func() error { return s.ServePacket(conn) },
	} {
		l.serving.Go(func() {
			if err := serve(); err != nil && !errors.Is(err, net.ErrClosed) {
				l.log.Error("DNS server ended", "address", s.Addr, "error", err)
			}
		})
	}
	return nil
}

// shareAddress has a socket share its address, so that the next server can listen
// before this one ends. The kernel lets only processes of one user do so.
func shareAddress(_, _ string, raw syscall.RawConn) error {
	var err error
	control := func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if outer := raw.Control(control); outer != nil {
		return outer
	}
	return err
}

// stop answers what has arrived and ends. Other sockets at the same addresses
// get what arrives from now on.
func (l *listeners) stop() error {
	l.stopped.Do(func() {
		var errs []error
		for _, p := range l.packets {
			errs = append(errs, p.drain())
		}
		for _, s := range l.servers {
			errs = append(errs, s.Stop())
		}
		for _, s := range l.sockets { // for servers that hadn't begun when they were stopped
			if err := s.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
		l.serving.Wait()
		l.err = errors.Join(errs...)
	})
	return l.err
}

// direct reports whether our plugin may answer before all others, because none
// that a question passes first has a say in the answers; and if so, the longest
// answer that may be asked for.
func (l *listeners) direct() (ednsLimit uint16, ok bool) {
	ednsLimit = math.MaxUint16
	for _, h := range l.config.Handlers() {
		switch h.Name() {
		case pluginName:
			return ednsLimit, true
		case "bufsize":
			b, ok := h.(bufsize.Bufsize)
			if !ok {
				return 0, false
			}
			ednsLimit = uint16(b.Size)
		case "errors", "prometheus", "autopath": // see Index.directly for the last
		default:
			return 0, false
		}
	}
	return 0, false
}

// separate reports whether every block of a Corefile is for all names at a port
// of its own, so that a block can be served without regard to the others.
func separate(input caddy.Input) (bool, error) {
	blocks, err := caddyfile.Parse(input.Path(), bytes.NewReader(input.Body()), nil)
	if err != nil {
		return false, fmt.Errorf("read Corefile: %w", err)
	}
	var ports []string
	for _, b := range blocks {
		if len(b.Keys) != 1 {
			return false, nil
		}
		zone, port, _ := strings.Cut(strings.TrimPrefix(b.Keys[0], "dns://"), ":")
		if port == "" {
			port = dnsserver.Port
		}
		if zone != "." || slices.Contains(ports, port) {
			return false, nil
		}
		ports = append(ports, port)
	}
	return true, nil
}
