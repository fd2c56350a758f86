package steering

import (
	"errors"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/announce/link"
)

var (
	key  = link.NewKeys([]byte("the key of this cluster"))
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
		{Node: strings.Repeat("n", link.MaxName), Entries: longest},
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
		if _, err := parse(b, link.NewKeys([]byte("another"))); !errors.Is(err, link.ErrSignature) {
			t.Errorf("with another key: %v", err)
		}
		b[10] ^= 1
		if _, err := parse(b, key); !errors.Is(err, link.ErrSignature) {
			t.Errorf("changed on its way: %v", err)
		}
	}
	for _, m := range []*message{{}, {Node: strings.Repeat("n", link.MaxName+1)}, {Node: "n", Entries: append(longest, entry{Address: four})}} {
		if _, err := m.marshal(key); err == nil {
			t.Errorf("%+v is sent", m)
		}
	}
}

func (m *message) marshal(keys *link.Keys) ([]byte, error) {
	return format.Marshal(m.frame(make(net.HardwareAddr, 6)), keys)
}

func parse(b []byte, keys *link.Keys) (*message, error) {
	m, err := format.Unmarshal(b, keys)
	if err != nil {
		return nil, err
	}
	return readMessage(m), nil
}

func FuzzEntry(f *testing.F) {
	f.Add((entry{Address: four, Asks: true}).append(nil))
	f.Add((entry{Address: six, Holds: true}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, n := parseEntry(b)
		if n == 0 {
			return
		}
		if again, m := parseEntry(e.append(nil)); again != e || m != n {
			t.Errorf("read %+v, then %+v", e, again)
		}
	})
}
