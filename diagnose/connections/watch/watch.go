// Package watch tells what passes the plane's programs, while somebody reads: programs of
// the reader's own stand before and behind them. Without a reader there are none of
// these, and the plane's own know nothing of them. The kernel takes them away when the
// reader's process ends, however it does.
//
//   - attach.go: where the programs go
//   - event.go: what the ring buffer holds
//   - connections.go: connections as they begin and end, for `fairway flows`
//   - bpf/watch.c: the programs
package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Watch is what a reader has in the kernel.
type Watch struct {
	dir      string // of the node's pins
	cgroup   string
	port     uint16
	programs *ebpf.Collection
	attached map[place]func() error
	events   *ringbuf.Reader
	lost     uint64
	sockets  error // why sockets can't be watched; nil if they are
}

// ErrLost says that there was more than could be told.
var ErrLost = errors.New("events came faster than they were read: some are missing")

// ErrNoPrograms says that none of the plane's programs run here.
var ErrNoPrograms = errors.New("no programs of ebpf mode run on this node")

// Open begins to watch the node of the calling thread's network namespace, whose pins are
// in a directory and whose processes are in a cgroup: connections that may begin, or with a
// port each packet that has it at either end.
func Open(dir, cgroup string, port uint16) (w *Watch, err error) {
	w = &Watch{dir: dir, cgroup: cgroup, port: port, attached: map[place]func() error{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("watch the programs: %w", missing(err)), w.Close())
			w = nil
		}
	}()
	if err := w.load(); err != nil {
		return w, err
	}
	if w.events, err = ringbuf.NewReader(w.programs.Maps["told"]); err != nil {
		return w, err
	}
	return w, w.Follow()
}

// missing says more clearly what a refusal means.
func missing(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return &kernel.MissingError{What: "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN", Err: err}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, btf.ErrNotFound), errors.Is(err, syscall.EINVAL):
		return &kernel.MissingError{What: "tcx and BTF", Since: "6.6", Err: err}
	}
	return err
}

// load loads the programs, with the maps of the node. Where the kernel doesn't take those
// that look at sockets, the others do without.
func (w *Watch) load() error {
	replace := map[string]*ebpf.Map{}
	for _, name := range []string{"frontends", "prefixes", "ranges", "sockets_2", "answers_2"} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(w.dir, pins.Layout, name), nil)
		if errors.Is(err, os.ErrNotExist) {
			return ErrNoPrograms
		}
		if err != nil {
			return fmt.Errorf("open map %s: %w", name, err)
		}
		defer m.Close() //nolint:errcheck // the programs have it
		replace[name] = m
	}
	spec, err := loadWatch()
	if err != nil {
		return err
	}
	port := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, w.port))
	if err := spec.Variables["port"].Set(port); err != nil {
		return err
	}
	for name := range spec.Maps {
		if !used[name] && name[0] != '.' {
			delete(spec.Maps, name)
		}
	}
	withoutSockets := spec.Copy()
	for name, program := range withoutSockets.Programs {
		if program.Type != ebpf.SchedCLS {
			delete(withoutSockets.Programs, name)
		}
	}
	options := ebpf.CollectionOptions{MapReplacements: replace}
	if w.programs, w.sockets = ebpf.NewCollectionWithOptions(spec, options); w.sockets != nil {
		w.programs, err = ebpf.NewCollectionWithOptions(withoutSockets, options)
	}
	return err
}

// used are the maps that the programs need; headers that are shared with the plane's
// programs name more.
var used = map[string]bool{
	"frontends": true, "prefixes": true, "ranges": true, "sockets_2": true, "answers_2": true,
	"told": true, "lost": true, "datagrams": true, "balanced": true,
}

// Lacks says what isn't watched; "" if nothing.
func (w *Watch) Lacks() string {
	if w.sockets == nil {
		return ""
	}
	return fmt.Sprintf("connections that were balanced at the socket aren't told of: %v", missing(w.sockets))
}

// Next waits for an event. The error is os.ErrDeadlineExceeded if none comes in time, and
// ErrLost if some are missing; the watch goes on after both.
func (w *Watch) Next(deadline time.Time) (Event, error) {
	if n := w.sumLost(); n > w.lost {
		w.lost = n
		return Event{}, ErrLost
	}
	w.events.SetDeadline(deadline)
	record, err := w.events.Read()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Event{}, os.ErrDeadlineExceeded
	case err != nil:
		return Event{}, fmt.Errorf("watch the programs: %w", err)
	case len(record.RawSample) < int(unsafe.Sizeof(watchSeen{})):
		return Event{}, fmt.Errorf("watch the programs: %d bytes are no event", len(record.RawSample))
	}
	return decode((*watchSeen)(unsafe.Pointer(&record.RawSample[0]))), nil
}

func (w *Watch) sumLost() uint64 {
	var each []uint64
	if w.programs.Maps["lost"].Lookup(uint32(0), &each) != nil {
		return w.lost
	}
	total := uint64(0)
	for _, n := range each {
		total += n
	}
	return total
}

// Close ends the watch.
func (w *Watch) Close() error {
	var errs []error
	for at, detach := range w.attached {
		errs = append(errs, detach())
		delete(w.attached, at)
	}
	if w.events != nil {
		errs = append(errs, w.events.Close())
		w.events = nil
	}
	if w.programs != nil {
		w.programs.Close()
		w.programs = nil
	}
	return errors.Join(errs...)
}
