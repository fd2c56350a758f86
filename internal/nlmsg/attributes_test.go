package nlmsg

import (
	"bytes"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// sample has a number, a text, a nested list and an attribute whose size isn't a
// multiple of four at its end.
func sample() []byte {
	nested := nl.NewRtAttr(3|unix.NLA_F_NESTED, nil)
	nested.AddRtAttr(1|unix.NLA_F_NET_BYTEORDER, []byte{0, 0, 0, 7})
	return slices.Concat(
		nl.NewRtAttr(1, []byte{0, 0, 1, 2}).Serialize(),
		nl.NewRtAttr(2, []byte("eth0\x00")).Serialize(),
		nested.Serialize(),
		nl.NewRtAttr(4, []byte{0, 0, 0, 0, 0, 0, 0, 9}).Serialize(),
		nl.NewRtAttr(5, []byte{1}).Serialize())
}

func TestRead(t *testing.T) {
	l := Attributes(sample())
	if got := l.Uint32(1); got != 258 {
		t.Errorf("number: got %d", got)
	}
	if got := l.String(2); got != "eth0" {
		t.Errorf("text: got %q", got)
	}
	if got := l.Get(3).Uint32(1); got != 7 {
		t.Errorf("nested number: got %d", got)
	}
	if got := l.Uint64(4); got != 9 {
		t.Errorf("long number: got %d", got)
	}
	if got := l.Get(5); !bytes.Equal(got, []byte{1}) {
		t.Errorf("last: got %v", got)
	}
	if l.Get(6) != nil || l.Uint32(6) != 0 || l.Uint64(1) != 0 || l.Uint32(2) != 0 || l.String(6) != "" {
		t.Error("found something that isn't there")
	}
}

// TestTruncated cuts a message at each place. What is whole before it is read.
func TestTruncated(t *testing.T) {
	whole := sample()
	for n := range whole {
		seen := 0
		for range Attributes(whole[:n]).All() {
			seen++
		}
		if n < 8 && seen != 0 || n >= 8 && Attributes(whole[:n]).Uint32(1) != 258 {
			t.Errorf("the first %d bytes: %d attributes", n, seen)
		}
	}
}

func FuzzAll(f *testing.F) {
	f.Add(sample())
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{4, 0, 0, 0, 3, 0, 0, 0})
	f.Add([]byte{255, 255, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		total := 0
		for typ, value := range Attributes(data).All() {
			total += unix.SizeofNlAttr + len(value)
			if typ&^typeMask != 0 || total > len(data) {
				t.Fatalf("attribute %#x of %d bytes in a message of %d", typ, len(value), len(data))
			}
			for range value.All() {
				value.Word()
			}
		}
	})
}

// TestNothingIsAllocated: tens of thousands of rules are read this way.
func TestNothingIsAllocated(t *testing.T) {
	l := Attributes(sample())
	if n := testing.AllocsPerRun(10, func() {
		for range l.All() {
			_ = l.Get(3).Uint32(1)
		}
		_ = l.Get(2).Word()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
