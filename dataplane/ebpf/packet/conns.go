package packet

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

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
)

// connTable is the connection table of the packet path: see bpf/conn.h.
type connTable struct {
	m       *maps.Resizable
	turns   *turnQueue
	orphans *ebpf.Map
	collect *ebpf.Program

	marked     bool // the queue has a mark, to know when each has had its turn
	netfilters bool // since then, there was one that netfilter has
}

// collectInterval is how often the agent has ended connections removed. Programs do so
// with every new connection.
const collectInterval = 10 * time.Second

// openConns opens the table, with the queue of turns. When the one becomes larger,
// so does the other.
func openConns(s *maps.Store, specs map[string]*ebpf.MapSpec) (*connTable, error) {
	tracked, err := openTurns(s, specs)
	if err != nil {
		return nil, err
	}
	t := &connTable{m: s.Resizable[maps.ConnsMap], turns: tracked, orphans: s.Maps[tcMapOrphans]}
	t.m.Busy = isUnnamed
	t.m.OnGrowth = func() error { return tracked.rebuild(t) }
	return t, nil
}

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
	c.direct = c.direct || e.about().Seen == tcPacketsSeenCLIENTS_ONLY
	c.netfilters = c.netfilters || e.about().Owner == tcOwnerNETFILTERS
	if e.has(tcTraitsTO_CLIENT) {
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
	case c.direct && c.client&stepResumed != 0:
		return tcpResumed
	case (c.client|c.answers)&stepCloses != 0:
		return tcpHalfClosed
	case answered && c.client&stepAcks != 0:
		return tcpEstablished
	}
	return tcpOpening
}

// collect removes ended connections until ctx is done.
func (p *Path) collect(ctx context.Context) {
	if err := p.conns.turns.rebuild(p.conns); err != nil {
		slog.Warn("connections of an earlier process may not end", "error", err)
	}
	tick := time.NewTicker(collectInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		left, err := p.conns.collectEnded()
		if err == nil && !left {
			p.mu.Lock()
			err = p.releaseKeeper()
			p.mu.Unlock()
		}
		if err != nil {
			slog.Warn("ended connections could not be removed", "error", err)
		}
	}
}

// collectedAtOnce is how many connections the program collect looks at.
const collectedAtOnce = 256

// collectEnded has the kernel look at a sixth of the connections, or at all if there are few,
// and remove those that have ended. It reports whether netfilter may translate some.
func (t *connTable) collectEnded() (left bool, err error) {
	const few = 64
	for range max(few, t.m.Size()/collectedAtOnce/6) {
		if !t.marked {
			if err := t.putTurn(&tcTracked{}); err != nil {
				return true, err
			}
			t.marked, t.netfilters = true, false
		}
		found, err := t.collect.Run(&ebpf.RunOptions{Data: make([]byte, 16)}) // less is no Ethernet frame
		if err != nil {
			return true, fmt.Errorf("collect connections: %w", err)
		}
		t.netfilters = t.netfilters || found&uint32(tcCollectedNETFILTER_HAS_SOME) != 0
		if found&uint32(tcCollectedEACH_HAD_ITS_TURN) != 0 {
			t.marked = false
			return t.netfilters, t.collectOrphans()
		}
	}
	return true, nil
}

// isUnnamed reports whether a packet of the connection is about to get an address
// and a port; the program does that in the entry's place.
func isUnnamed(entry []byte) bool {
	return tcKind(entry[unsafe.Offsetof(tcConn{}.Kind)])&^tcKindFROZEN == tcKindMASQ_UNNAMED
}

// each visits all entries, many at a time, as growing.each does.
func (t *connTable) each(visit func(*tcTuple, *tcConn)) error {
	at := t.m.Maps.Load()
	for _, m := range []*ebpf.Map{at.Previous, at.Current} {
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
