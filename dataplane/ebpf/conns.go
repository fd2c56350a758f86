package ebpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// connTable is the connection table of the packet path: see bpf/conn.h.
type connTable struct {
	m       *growing
	orphans *ebpf.Map
	release *ebpf.Program
}

// Of bpf/work.h: enum hook, enum conn_flags and enum step.
const (
	atIngress = 1
	atEgress  = 2

	connAnswer     = 1
	connUnnamed    = 2
	connOwn        = 4
	connCounted    = 8
	connNetfilters = 32
	connHeld       = 64
	connDirect     = 128

	stepCloses  = 2
	stepResets  = 4
	stepAnswers = 8
	stepUsed    = 128
)

// How long connections are remembered after their last packet, in seconds:
// kube-proxy's and netfilter's defaults (nf_conntrack-sysctl.rst), but for what
// both ends have closed, whose ports may be used again at once.
const (
	tcpOpening     = 60
	tcpEstablished = 24 * 60 * 60
	tcpHalfClosed  = 60 * 60
	tcpClosed      = 120
	tcpReset       = 10
	directClosed   = 5 * 60 // the client has closed, and the backend's end isn't seen
	udpOnce        = 30
	udpStream      = 180
)

// sweepEvery is how often ended connections are removed.
const sweepEvery = 10 * time.Second

// connection is what its entries say together.
type connection struct {
	seen            uint32
	proto           uint8
	client, answers uint8 // steps of the two directions
	backend         uint32
	netfilters      bool // it translates the connection
	direct          bool // answers go another way
}

func (c *connection) add(key *tcTuple, e *tcConn) {
	c.seen, c.proto, c.backend = max(c.seen, e.Seen), key.Proto, e.Backend
	c.direct = c.direct || e.Flags&connDirect != 0 && (e.Flags&connAnswer != 0) != (e.Flags&connCounted != 0)
	c.netfilters = c.netfilters || e.Flags&connNetfilters != 0
	if e.Flags&connAnswer != 0 {
		c.answers |= e.Steps
	} else {
		c.client |= e.Steps
	}
}

// timeout is how long the connection may be silent.
func (c *connection) timeout() uint32 {
	answered := c.answers&stepUsed != 0 || c.direct
	switch {
	case c.proto == unix.IPPROTO_UDP && answered:
		return udpStream
	case c.proto == unix.IPPROTO_UDP:
		return udpOnce
	case (c.client|c.answers)&stepResets != 0:
		return tcpReset
	case c.client&c.answers&stepCloses != 0:
		return tcpClosed
	case c.direct && c.client&stepCloses != 0:
		return directClosed
	case (c.client|c.answers)&stepCloses != 0:
		return tcpHalfClosed
	case answered && c.client&stepAnswers != 0:
		return tcpEstablished
	}
	return tcpOpening
}

// counted reports whether the schedulers still take the connection for an
// active one: see ended in bpf/conn.h.
func (c *connection) counted() bool {
	return c.client&(stepCloses|stepResets) == 0 && c.answers&stepResets == 0
}

// collect removes ended connections until ctx is done.
func (p *packetPath) collect(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		left, err := p.conns.sweep()
		if err == nil && !left {
			err = p.letGo()
		}
		p.mu.Unlock()
		if err != nil {
			slog.Warn("Ended connections not removed", "error", err)
		}
	}
}

// sweep removes connections that have been silent for too long, and reports whether
// any are left that netfilter translates.
func (t *connTable) sweep() (left bool, err error) {
	now, err := monotonic()
	if err != nil {
		return false, err
	}
	all := map[uint64]*connection{}
	err = t.each(func(key *tcTuple, e *tcConn) {
		c := all[e.Id]
		if c == nil {
			c = &connection{}
			all[e.Id] = c
		}
		c.add(key, e)
	})
	if err != nil {
		return false, err
	}
	ended := map[uint64]*connection{}
	for id, c := range all {
		if now > c.seen && now-c.seen > c.timeout() {
			ended[id] = c
		} else {
			left = left || c.netfilters
		}
	}
	if err := t.remove(ended); err != nil {
		return false, err
	}
	return left, t.sweepOrphans()
}

// remove removes the entries of connections, unless they have become those of
// others meanwhile, and tells the schedulers.
func (t *connTable) remove(ended map[uint64]*connection) error {
	if len(ended) == 0 {
		return nil
	}
	var keys []tcTuple
	err := t.each(func(key *tcTuple, e *tcConn) {
		if ended[e.Id] != nil {
			keys = append(keys, *key)
		}
	})
	if err != nil {
		return err
	}
	var released []uint32
	for i := range keys {
		e, err := t.removeIf(&keys[i], func(e *tcConn) bool { return ended[e.Id] != nil })
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		if c := ended[e.Id]; e.Flags&(connCounted|connAnswer) == connCounted && c.counted() {
			released = append(released, c.backend)
		}
	}
	return t.tellReleased(released)
}

// removeIf removes an entry if it is what is meant, and returns it; it doesn't move
// meanwhile, nor come back.
func (t *connTable) removeIf(key *tcTuple, meant func(*tcConn) bool) (*tcConn, error) {
	t.m.moving.Lock()
	defer t.m.moving.Unlock()
	var e tcConn
	err := t.m.lookup(key, &e)
	if errors.Is(err, ebpf.ErrKeyNotExist) || err == nil && !meant(&e) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read connection: %w", err)
	}
	if err := t.m.remove(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("delete connection: %w", err)
	}
	return &e, nil
}

// releaseAtOnce is how many backends the program takes in one run.
const releaseAtOnce = 256

// tellReleased takes connections off those that the backends have, in the
// kernel, where it can be done while packets do the same.
func (t *connTable) tellReleased(backends []uint32) error {
	for len(backends) > 0 {
		n := min(len(backends), releaseAtOnce)
		packet := make([]byte, 0, 4*n+16)
		for _, id := range backends[:n] {
			packet = binary.NativeEndian.AppendUint32(packet, id)
		}
		for len(packet) < 16 { // less is no Ethernet frame; 0 is nobody's id
			packet = append(packet, 0)
		}
		if _, err := t.release.Run(&ebpf.RunOptions{Data: packet}); err != nil {
			return fmt.Errorf("release backends: %w", err)
		}
		backends = backends[n:]
	}
	return nil
}

// isUnnamed reports whether a packet of the connection is about to get an address
// and a port; the program does that in the entry's place.
func isUnnamed(entry []byte) bool {
	return entry[unsafe.Offsetof(tcConn{}.Flags)]&connUnnamed != 0
}

// each visits all entries, many at a time, as growing.each does.
func (t *connTable) each(visit func(*tcTuple, *tcConn)) error {
	at := t.m.maps.Load()
	for _, m := range []*ebpf.Map{at.before, at.now} {
		if m == nil {
			continue
		}
		if err := eachConn(m, visit); err != nil {
			return fmt.Errorf("read connections: %w", err)
		}
	}
	return nil
}

func eachConn(m *ebpf.Map, visit func(*tcTuple, *tcConn)) error {
	const many = 4096
	keys, values := make([]tcTuple, many), make([]tcConn, many)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			visit(&keys[i], &values[i])
		}
		if err != nil {
			return nil // that was all
		}
	}
}

// monotonic is the clock of bpf_ktime_get_ns, in seconds.
func monotonic() (uint32, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint32(now.Sec), nil
}

func native32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
