// Package drops tells which packets the kernel drops in a network namespace, and why, by
// its own reasons (Linux 5.17, with BTF). The program lives as long as its reader: the
// kernel detaches it when the process ends, however it does.
package drops

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Query says which packets are asked for.
type Query struct {
	Port    uint16 // of either end; 0 for any
	Answers bool   // also packets that begin no connection
}

// Drop is a packet that the kernel dropped.
type Drop struct {
	Reason              string // as the kernel calls it: "NETFILTER_DROP"
	Interface           int    // its index; 0 if it isn't known
	Proto               model.Protocol
	Source, Destination netip.AddrPort // as the packet was dropped
	// Client and Frontend are the ends of its connection as conntrack saw it first; of
	// what conntrack doesn't know, Source and Destination.
	Client, Frontend netip.AddrPort
	TCPFlags         uint8
}

// Watch is what a reader has in the kernel.
type Watch struct {
	objects dropsObjects
	at      link.Link
	events  *ringbuf.Reader
	reasons map[uint32]string
	lost    uint64
}

// ErrLost says that there were more than could be told.
var ErrLost = errors.New("packets were dropped faster than they were read: some are missing")

// Open begins to watch the network namespace of the calling thread.
func Open(q Query) (w *Watch, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("watch dropped packets: %w", missing(err))
		}
	}()
	w = &Watch{}
	if w.reasons, err = readReasons(); err != nil {
		return nil, err
	}
	spec, err := loadDrops()
	if err != nil {
		return nil, err
	}
	var stat syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &stat); err != nil {
		return nil, err
	}
	port := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, q.Port))
	answers := uint8(0)
	if q.Answers {
		answers = 1
	}
	for name, value := range map[string]any{"netns": uint32(stat.Ino), "port": port, "answers": answers} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, err
		}
	}
	if err := spec.LoadAndAssign(&w.objects, nil); err != nil {
		return nil, err
	}
	if w.at, err = link.AttachTracing(link.TracingOptions{Program: w.objects.Dropped}); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if w.events, err = ringbuf.NewReader(w.objects.Told); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// missing says more clearly what a refusal means.
func missing(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return &kernel.MissingError{What: "CAP_BPF and CAP_PERFMON", Err: err}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, btf.ErrNotFound), errors.Is(err, syscall.EINVAL), errors.Is(err, os.ErrNotExist):
		return &kernel.MissingError{What: "reasons for dropped packets, with BTF", Since: "5.17", Err: err}
	}
	return err
}

// readReasons are the kernel's reasons by number.
func readReasons() (map[uint32]string, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	var enum *btf.Enum
	if err := spec.TypeByName("skb_drop_reason", &enum); err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for _, v := range enum.Values {
		names[uint32(v.Value)] = strings.TrimPrefix(v.Name, "SKB_DROP_REASON_")
	}
	return names, nil
}

// Next waits for a packet. The error is os.ErrDeadlineExceeded if none comes in time, and
// ErrLost if some are missing; the watch goes on after both.
func (w *Watch) Next(deadline time.Time) (Drop, error) {
	if n := w.sumLost(); n > w.lost {
		w.lost = n
		return Drop{}, ErrLost
	}
	w.events.SetDeadline(deadline)
	record, err := w.events.Read()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Drop{}, os.ErrDeadlineExceeded
	case err != nil:
		return Drop{}, fmt.Errorf("watch dropped packets: %w", err)
	case len(record.RawSample) < int(unsafe.Sizeof(dropsDrop{})):
		return Drop{}, fmt.Errorf("watch dropped packets: %d bytes are no event", len(record.RawSample))
	}
	return w.decode((*dropsDrop)(unsafe.Pointer(&record.RawSample[0]))), nil
}

// Run tells of packets until ctx is done.
func (w *Watch) Run(ctx context.Context, tell func(Drop), lost func()) error {
	defer context.AfterFunc(ctx, func() { w.events.SetDeadline(time.Unix(1, 0)) })()
	for ctx.Err() == nil {
		d, err := w.Next(time.Now().Add(time.Second)) // or an earlier interruption is overwritten for longer
		switch {
		case err == nil:
			tell(d)
		case errors.Is(err, ErrLost):
			lost()
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
	}
	return nil
}

func (w *Watch) sumLost() uint64 {
	var each []uint64
	if w.objects.Lost.Lookup(uint32(0), &each) != nil {
		return w.lost
	}
	total := uint64(0)
	for _, n := range each {
		total += n
	}
	return total
}

func (w *Watch) decode(e *dropsDrop) Drop {
	d := Drop{
		Reason: w.reasons[e.Reason], Interface: int(e.Ifindex), Proto: model.Protocol(e.Proto), TCPFlags: e.Flags,
		Source: addrPort(e.Src, e.Sport, e.V6), Destination: addrPort(e.Dst, e.Dport, e.V6),
	}
	if d.Reason == "" {
		d.Reason = fmt.Sprintf("reason %d", e.Reason)
	}
	d.Client, d.Frontend = d.Source, d.Destination
	if e.Tracked != 0 {
		d.Client, d.Frontend = addrPort(e.Client, e.ClientPort, e.V6), addrPort(e.Frontend, e.FrontendPort, e.V6)
	}
	return d
}

// addrPort is an address and a port in network byte order.
func addrPort(a [16]uint8, port uint16, six uint8) netip.AddrPort {
	p := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
	if six != 0 {
		return netip.AddrPortFrom(netip.AddrFrom16(a), p)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[:4])), p)
}

// Close ends the watch.
func (w *Watch) Close() error {
	var errs []error
	if w.events != nil {
		errs = append(errs, w.events.Close())
	}
	if w.at != nil {
		errs = append(errs, w.at.Close())
	}
	return errors.Join(append(errs, w.objects.Close())...)
}
