package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/internal/kernel"
)

// counters is struct counters of bpf/types.h.
type counters struct {
	Connections, Packets, Bytes uint64
	NotAllowed, NoBackend       uint64
}

// Counters implements dataplane.Counter. Bytes stay 0: connections on the
// socket path go past whatever could count them.
func (p *Plane) Counters(ctx context.Context) (list []kernel.Count, err error) {
	outer, err := ebpf.LoadPinnedMap(filepath.Join(p.dir, layout, string(frontends)), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", frontends, err)
	}
	defer func() { err = errors.Join(err, outer.Close()) }()
	t := &kernelTable{name: frontends, outer: outer}
	if err := t.openInner(); err != nil || t.inner == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.inner.Close()) }()
	elements, err := t.read()
	if err != nil {
		return nil, err
	}
	reader, err := openCounts(p.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.close()) }()
	for key, value := range elements {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		k, v := unpacker(key), unpacker(value)
		c, err := reader.read(v.u32())
		if err != nil {
			return nil, err
		}
		if c.Connections+c.NotAllowed+c.NoBackend > 0 {
			list = append(list, kernel.Count{Frontend: k.key(), Connections: c.Connections, Refused: c.NotAllowed + c.NoBackend})
		}
	}
	return list, nil
}

// countReader reads the counters of ids.
type countReader struct {
	outer  *ebpf.Map
	chunks map[uint32]*ebpf.Map
}

func openCounts(dir string) (*countReader, error) {
	outer, err := ebpf.LoadPinnedMap(filepath.Join(dir, layout, "counts"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open map counts: %w", err)
	}
	return &countReader{outer, map[uint32]*ebpf.Map{}}, nil
}

// read adds up what the processors have counted under an id.
func (r *countReader) read(id uint32) (sum counters, err error) {
	n := id / chunkSize
	if r.chunks[n] == nil {
		var m *ebpf.Map
		err := r.outer.Lookup(n, &m)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return sum, nil // given just now
		}
		if err != nil {
			return sum, fmt.Errorf("open map of counters %d: %w", n, err)
		}
		r.chunks[n] = m
	}
	var each []counters
	if err := r.chunks[n].Lookup(id%chunkSize, &each); err != nil {
		return sum, fmt.Errorf("read counters: %w", err)
	}
	for _, c := range each {
		sum.Connections += c.Connections
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		sum.NotAllowed += c.NotAllowed
		sum.NoBackend += c.NoBackend
	}
	return sum, nil
}

func (r *countReader) close() error {
	errs := []error{r.outer.Close()}
	for _, m := range r.chunks {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
