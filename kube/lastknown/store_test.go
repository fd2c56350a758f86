package lastknown

import (
	"bytes"
	"fmt"
	"testing"
)

// text is an object that is encoded as itself.
type text string

func (t text) Size() int                                     { return len(t) }
func (t text) MarshalToSizedBuffer(into []byte) (int, error) { return copy(into, t), nil }

// TestBatch: values of a batch don't lie in each other's memory, also where one is larger
// than all others, and where the batch is used again.
func TestBatch(t *testing.T) {
	b := newBatch()
	for round := range 2 {
		want := map[string][]byte{}
		for i, size := range []int{10, 0, fewBytes, 3, flushBytes + 1, 100, flushBytes - 1, 5, flushBytes} {
			key := fmt.Sprint(i)
			want[key] = bytes.Repeat([]byte{byte('a' + i + 10*round)}, size)
			if err := b.add("services", key, text(want[key])); err != nil {
				t.Fatal(err)
			}
		}
		bytesIn := 0
		for key, value := range want {
			bytesIn += len(value)
			if got := b.changes["services"][key]; !bytes.Equal(got, value) || got == nil {
				t.Errorf("round %d: value %s has %d bytes, and not its %d", round, key, len(got), len(value))
			}
		}
		if b.bytes != bytesIn || b.empty() {
			t.Errorf("round %d: %d bytes, want %d; empty: %t", round, b.bytes, bytesIn, b.empty())
		}
		if b.clear(); b.bytes != 0 || !b.empty() {
			t.Errorf("a batch that was cleared has %d bytes", b.bytes)
		}
	}
}
