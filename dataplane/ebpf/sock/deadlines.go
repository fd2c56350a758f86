package sock

import (
	"errors"
	"fmt"
	gomaps "maps"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// deadlines is when sockets are taken away from backends that are gone. They are in a map of
// the kernel's, so that another process goes on with them. A socket whose backend is back by
// then keeps it.
type deadlines struct {
	mu      sync.Mutex
	m       *ebpf.Map // cookie to CLOCK_MONOTONIC in ns
	sockets *maps.Resizable
	table   *model.Table // in force
	timer   *time.Timer
	waiting bool // there are deadlines
	closed  bool
	// kept are sockets whose backend has come back. It has another id than they remember, and
	// so isn't known to have any.
	kept map[uint64]bool
	err  error // of what was done while nobody asked
}

// begin notes the table that is in force now, and gives the error of what was done since the
// last time. The first time it goes on with what an earlier process has left.
func (d *deadlines) begin(s *maps.Store, want *model.Table) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := d.m == nil
	d.m, d.sockets, d.table = s.Maps[sockMapDeadlines], s.Resizable[maps.SocketsMap], want
	err := d.err
	d.err = nil
	if first {
		err = errors.Join(err, d.arm())
	}
	return err
}

// set gives sockets their deadlines. One that has one keeps it, unless its backend has been
// back since, as the table before says.
func (d *deadlines) set(expiring map[uint64]time.Duration, isNew func(cookie uint64) bool) error {
	if len(expiring) == 0 {
		return nil
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	leftOut := 0
	for cookie, wait := range expiring {
		how := ebpf.UpdateNoExist
		if isNew(cookie) {
			how = ebpf.UpdateAny
		}
		err := d.m.Update(cookie, uint64(now+wait), how)
		switch {
		case errors.Is(err, ebpf.ErrKeyExist):
		case errors.Is(err, unix.E2BIG):
			leftOut++
		case err != nil:
			return fmt.Errorf("write map deadlines: %w", err)
		}
	}
	if err := d.arm(); err != nil {
		return err
	}
	if leftOut > 0 {
		return &kernel.FullError{What: "the eBPF map deadlines", LeftOut: leftOut}
	}
	return nil
}

// arm has meet called when the next deadline passes.
func (d *deadlines) arm() error {
	var next time.Duration
	err := d.each(func(_ uint64, at time.Duration) {
		if next == 0 || at < next {
			next = at
		}
	})
	d.waiting = next != 0
	if err != nil || next == 0 || d.closed {
		return err
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer = time.AfterFunc(max(0, next-now), d.meet)
	return nil
}

func (d *deadlines) each(visit func(cookie uint64, at time.Duration)) error {
	var cookie, at uint64
	all := d.m.Iterate()
	for all.Next(&cookie, &at) {
		visit(cookie, time.Duration(at))
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read map deadlines: %w", err)
	}
	return nil
}

// meet takes the sockets away whose deadline has passed.
func (d *deadlines) meet() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.err = errors.Join(d.err, d.meetDue(), d.arm())
	}
}

func (d *deadlines) meetDue() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	var due []uint64
	if err := d.each(func(cookie uint64, at time.Duration) {
		if at <= now {
			due = append(due, cookie)
		}
	}); err != nil {
		return err
	}
	ends := map[uint64]lbSocket{}
	for _, cookie := range due {
		s, there, err := d.socket(cookie)
		if err != nil {
			return err
		}
		switch {
		case there && keeps(d.table, s):
			if d.kept == nil {
				d.kept = map[uint64]bool{}
			}
			d.kept[cookie] = true
		case there:
			ends[cookie] = s
		}
		if err := d.m.Delete(cookie); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete from map deadlines: %w", err)
		}
	}
	return detachSockets(ends)
}

// concerns reports whether sockets are to be looked at though no backend that has gone is
// known to have any.
func (d *deadlines) concerns() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting || len(d.kept) > 0
}

// forget forgets the kept sockets that aren't there any more.
func (d *deadlines) forget(there func(cookie uint64) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gomaps.DeleteFunc(d.kept, func(cookie uint64, _ bool) bool { return !there(cookie) })
}

// socket is what the programs remember of a socket; it may have gone.
func (d *deadlines) socket(cookie uint64) (s lbSocket, there bool, err error) {
	value := make([]byte, d.sockets.Maps.Load().Current.ValueSize())
	err = d.sockets.Lookup(cookie, &value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("read socket: %w", err)
	}
	v := program.Unpacker(value)
	return lbSocket{front: v.Key(), backend: v.Endpoint()}, true, nil
}

// keeps reports whether a table has the backend for the frontend of a socket.
func keeps(t *model.Table, s lbSocket) bool {
	return t != nil && t.Keeps(t.Lookup(s.front), netip.AddrPortFrom(s.backend.Addr(), s.backend.Port()))
}

// close ends what this process does; the deadlines stay.
func (d *deadlines) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
}

// monotonic is the clock of bpf_ktime_get_ns.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
