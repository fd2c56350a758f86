package strays

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/announce/wire"
)

var (
	key  = []byte("the key of this cluster")
	four = netip.MustParseAddr("192.0.2.1")
	six  = netip.MustParseAddr("2001:db8::1")
)

func TestMessages(t *testing.T) {
	longest := make([]entry, maxEntries)
	for i := range longest {
		longest[i] = entry{Address: six, Holds: i%2 == 0}
	}
	for _, m := range []*message{
		{Node: "n", Incarnation: 1, Sequence: 2},
		{Node: "n1.example", Incarnation: 1 << 60, Sequence: 7, Ask: 3, Leaving: true, Entries: []entry{
			{Address: four, Asks: true}, {Address: six, Prepared: true}, {Address: four, Prepared: true, Holds: true},
		}},
		{Node: strings.Repeat("n", wire.MaxName), Entries: longest},
	} {
		b, err := m.marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 1280-14 {
			t.Errorf("%d bytes", len(b))
		}
		got, err := parse(append(b, 0, 0, 0), key) // Ethernet's padding
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v is read as %+v, %v", m, got, err)
		}
		if _, err := parse(b, []byte("another")); !errors.Is(err, wire.ErrSignature) {
			t.Errorf("with another key: %v", err)
		}
		b[6] ^= 1
		if _, err := parse(b, key); !errors.Is(err, wire.ErrSignature) {
			t.Errorf("changed on its way: %v", err)
		}
	}
	for _, m := range []*message{{}, {Node: strings.Repeat("n", wire.MaxName+1)}, {Node: "n", Entries: append(longest, entry{Address: four})}} {
		if _, err := m.marshal(key); err == nil {
			t.Errorf("%+v is sent", m)
		}
	}
}

func FuzzParse(f *testing.F) {
	b, err := (&message{Node: "n", Entries: []entry{{Address: four, Asks: true}, {Address: six, Holds: true}}}).marshal(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:wire.HeadLength])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b, key)
		if err != nil {
			return
		}
		if again, err := m.marshal(key); err != nil || len(again) > len(b) {
			t.Fatalf("read %+v, which can't be written: %v", m, err)
		}
	})
}
