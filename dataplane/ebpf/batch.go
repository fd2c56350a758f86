package ebpf

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// many is from how many elements on it pays to hand them over together
// (BPF_MAP_UPDATE_BATCH, Linux 5.6).
const many = 64

// putAll adds or changes elements of one table. Those for which there is no
// room are counted.
func (t *kernelTable) putAll(list []entry) (leftOut int, err error) {
	if t.outer != nil && len(list) >= many {
		if err := t.reserve(1); err != nil {
			return 0, err
		}
		err := t.batch(list)
		if err == nil {
			return 0, nil
		}
		if !errors.Is(err, unix.E2BIG) && !errors.Is(err, ebpf.ErrNotSupported) {
			return 0, fmt.Errorf("write elements of map %s: %w", t.name, err)
		}
	}
	for _, e := range list {
		err := t.put(e.key, e.value)
		if lacksRoom(err) {
			leftOut++
			continue
		}
		if err != nil {
			return leftOut, err
		}
	}
	return leftOut, nil
}

func (t *kernelTable) batch(list []entry) error {
	keys, values := arrays(len(list), t.inner.KeySize()), arrays(len(list), t.inner.ValueSize())
	for i, e := range list {
		copy(keys.Index(i).Bytes(), e.key)
		copy(values.Index(i).Bytes(), e.value)
	}
	_, err := t.inner.BatchUpdate(keys.Interface(), values.Interface(), nil)
	return err
}

// arrays is a slice of n arrays of so many bytes.
func arrays(n int, size uint32) reflect.Value {
	of := reflect.SliceOf(reflect.ArrayOf(int(size), reflect.TypeFor[byte]()))
	return reflect.MakeSlice(of, n, n)
}
