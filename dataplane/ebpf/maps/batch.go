package maps

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
)

// many is from how many elements on it pays to hand them over together
// (BPF_MAP_UPDATE_BATCH, Linux 5.6).
const many = 64

// putAll adds or changes elements of one table. It returns those for which there is no
// room.
func (t *Table) putAll(list []program.Entry) (leftOut []program.Entry, err error) {
	if t.outer != nil && len(list) >= many {
		if err := t.reserve(1); err != nil {
			return nil, err
		}
		err := t.batch(list)
		if err == nil {
			return nil, nil
		}
		if !errors.Is(err, unix.E2BIG) && !errors.Is(err, ebpf.ErrNotSupported) {
			return nil, fmt.Errorf("write elements of map %s: %w", t.name, err)
		}
	}
	for _, e := range list {
		err := t.Put(e.Key, e.Value)
		if kernel.IsFull(err) {
			leftOut = append(leftOut, e)
			continue
		}
		if err != nil {
			return leftOut, err
		}
	}
	return leftOut, nil
}

// together is how many elements are handed over at most: what they take as bytes is garbage
// afterwards.
const together = 4096

func (t *Table) batch(list []program.Entry) error {
	n := min(len(list), together)
	keys, values := arrays(n, t.inner.KeySize()), arrays(n, t.inner.ValueSize())
	for some := range slices.Chunk(list, together) {
		for i, e := range some {
			copy(keys.Index(i).Bytes(), e.Key)
			copy(values.Index(i).Bytes(), e.Value)
		}
		_, err := t.inner.BatchUpdate(keys.Slice(0, len(some)).Interface(), values.Slice(0, len(some)).Interface(), nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// arrays is a slice of n arrays of so many bytes.
func arrays(n int, size uint32) reflect.Value {
	of := reflect.SliceOf(reflect.ArrayOf(int(size), reflect.TypeFor[byte]()))
	return reflect.MakeSlice(of, n, n)
}
