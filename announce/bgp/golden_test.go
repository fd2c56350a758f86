package bgp

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairway-net/fairway/announce"
)

var update = flag.Bool("update", false, "write the golden files anew")

// addressed is a connection that writes into a buffer.
type addressed struct {
	net.Conn
	local net.Addr
}

func (a addressed) LocalAddr() net.Addr { return a.local }

// TestGolden: the bytes of messages, which routers of any kind read.
func TestGolden(t *testing.T) {
	marked := announce.Route{
		LocalPref: 200, Prepend: 2, Weight: 3,
		Communities: announce.Communities{Standard: []uint32{65000<<16 | 1, 0xffffff01}, Large: [][3]uint32{{64512, 2, 3}}},
	}
	var got bytes.Buffer
	for _, test := range []struct {
		name     string
		local    string
		asn      uint32 // of the router
		own      uint32
		family   bgp.Family
		nextHops bool // of IPv6 for IPv4
		route    announce.Route
		prefixes string
	}{
		{"plain, eBGP", "192.0.2.11", 64500, 64512, bgp.RF_IPv4_UC, false, announce.Route{}, "203.0.113.1/32 203.0.113.2/32"},
		{"plain, iBGP", "192.0.2.11", 64512, 64512, bgp.RF_IPv4_UC, false, announce.Route{}, "203.0.113.1/32"},
		{"all attributes, eBGP", "192.0.2.11", 64500, 64512, bgp.RF_IPv4_UC, false, marked, "203.0.113.0/24"},
		{"all attributes, iBGP", "192.0.2.11", 64512, 64512, bgp.RF_IPv4_UC, false, marked, "203.0.113.0/24"},
		{"AS number of four bytes", "192.0.2.11", 64500, 4200000000, bgp.RF_IPv4_UC, false, announce.Route{Weight: 1}, "203.0.113.1/32"},
		{"IPv6", "2001:db8::11", 64500, 64512, bgp.RF_IPv6_UC, false, announce.Route{}, "2001:db8:1::1/128 2001:db8:1::/64"},
		{"IPv6, all attributes", "2001:db8::11", 64512, 64512, bgp.RF_IPv6_UC, false, marked, "2001:db8:1::1/128"},
		{"IPv4 over IPv6 (RFC 8950)", "2001:db8::11", 64500, 64512, bgp.RF_IPv4_UC, true, announce.Route{}, "203.0.113.1/32"},
	} {
		c := &connection{
			session: &session{peer: announce.Peer{LocalASN: test.own}},
			Conn:    addressed{local: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(test.local), 40000))},
			agreed:  agreement{asn: test.asn, nextHops: test.nextHops, fourOctets: true},
		}
		var prefixes []netip.Prefix
		for _, text := range strings.Fields(test.prefixes) {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		hop, ok := c.nextHop(test.family)
		if !ok {
			t.Fatalf("%s: no next hop", test.name)
		}
		announced, err := c.announcement(test.family, hop, test.route, prefixes)
		writeGolden(t, &got, test.name+", announced", announced, err)
		withdrawn, err := withdraw(test.family, prefixes)
		writeGolden(t, &got, test.name+", withdrawn", withdrawn, err)
	}
	for _, f := range []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC} {
		writeGolden(t, &got, fmt.Sprint("End-of-RIB of ", f), bgp.NewEndOfRib(f), nil)
	}
	const file = "testdata/updates.txt"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("messages differ from %s (-update writes it):\n%s", file, got.Bytes())
	}
}

// writeGolden writes a message as sixteen bytes a line.
func writeGolden(t *testing.T, into *bytes.Buffer, name string, m *bgp.BGPMessage, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	b, err := m.Serialize()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	fmt.Fprintf(into, "%s\n", name)
	for len(b) > 0 {
		n := min(16, len(b))
		fmt.Fprintf(into, "\t%s\n", hex.EncodeToString(b[:n]))
		b = b[n:]
	}
}
