package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// TestInsertAndRead inserts flows of both families and all protocols, and reads them
// back. A second one in the place of the first is refused.
func TestInsertAndRead(t *testing.T) {
	at := netip.MustParseAddrPort
	for _, c := range []struct {
		name string
		flow Flow
	}{
		{"translated", Flow{Proto: model.TCP, Client: client, Frontend: vip, Backend: one, Source: client, TCPState: TCPEstablished, Status: SeenReply | Assured, Expires: 300}},
		{"masqueraded", Flow{Proto: model.UDP, Client: client, Frontend: vip, Backend: one, Source: at("192.0.2.1:40001"), Status: SeenReply, Expires: 100}},
		{"only masqueraded", Flow{Proto: model.UDP, Client: client, Frontend: one, Backend: one, Source: at("192.0.2.1:40001"), Status: SeenReply, Expires: 100}},
		{"IPv6", Flow{Proto: model.TCP, Client: at("[fd00::1]:4000"), Frontend: at("[fd00:96::1]:80"), Backend: at("[fd00:244::2]:8080"), Source: at("[fd00::9]:4001"), TCPState: TCPEstablished, Status: SeenReply | Assured, Expires: 300, Mark: 7}},
		{"zone", Flow{Proto: model.UDP, Client: client, Frontend: vip, Backend: one, Source: client, Status: SeenReply, Expires: 100, zone: zone{5, bothDirections}}},
		{"zone of one direction", Flow{Proto: model.UDP, Client: client, Frontend: vip, Backend: one, Source: client, Status: SeenReply, Expires: 100, zone: zone{5, originals}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inNamespace(t)
			if err := c.flow.Insert(); err != nil {
				t.Fatal(err)
			}
			if err := c.flow.Insert(); !errors.Is(err, unix.EEXIST) {
				t.Errorf("a second one: %v, want EEXIST", err)
			}
			var found []Flow
			read := func() {
				found = nil
				if err := Flows(context.Background(), func(f *Flow) { found = append(found, *f) }); err != nil {
					t.Fatal(err)
				}
			}
			if read(); len(found) != 1 {
				t.Fatalf("found %+v", found)
			}
			got, want := found[0], c.flow
			want.Replied = true
			want.id, got.Expires, got.Status = got.id, want.Expires, got.Status&(SeenReply|Assured)
			if got != want {
				t.Errorf("read back %+v, want %+v", got, want)
			}
			if err := found[0].Delete(); err != nil {
				t.Error(err)
			}
			if read(); len(found) != 0 {
				t.Errorf("left after deletion: %+v", found)
			}
			if err := c.flow.Delete(); err != nil {
				t.Errorf("delete what isn't there: %v", err)
			}
		})
	}
}

// TestForget deletes an entry by the packets of either direction.
func TestForget(t *testing.T) {
	f := Flow{Proto: model.TCP, Client: client, Frontend: vip, Backend: one, Source: client, TCPState: TCPEstablished, Status: SeenReply, Expires: 300}
	for _, ends := range [][2]netip.AddrPort{{client, vip}, {one, client}} {
		inNamespace(t)
		if err := f.Insert(); err != nil {
			t.Fatal(err)
		}
		if err := Forget(model.TCP, ends[0], ends[1]); err != nil {
			t.Error(err)
		}
		if got := flows(t, model.TCP); len(got) != 0 {
			t.Errorf("%s > %s: left %q", ends[0], ends[1], got)
		}
	}
}

func TestEnded(t *testing.T) {
	for _, c := range []struct {
		proto model.Protocol
		state uint8
		ended bool
	}{
		{model.TCP, 1, false}, // SYN_SENT
		{model.TCP, TCPEstablished, false},
		{model.TCP, 4, false}, // FIN_WAIT
		{model.TCP, 6, false}, // LAST_ACK
		{model.TCP, TCPTimeWait, true},
		{model.TCP, TCPClose, true},
		{model.UDP, 0, false},
	} {
		if f := (Flow{Proto: c.proto, TCPState: c.state}); f.Ended() != c.ended {
			t.Errorf("%s in state %d: ended: %t", c.proto, c.state, f.Ended())
		}
	}
}

// message is a flow as the kernel sends it.
func message(f *Flow) []byte {
	msg := (&nl.Nfgenmsg{NfgenFamily: familyOf(f.Client.Addr())}).Serialize()
	for _, part := range []*nl.RtAttr{
		tuple{f.Client, f.Frontend, f.Proto, f.zone.of(originals)}.encode(nl.CTA_TUPLE_ORIG),
		tuple{f.Backend, f.Source, f.Proto, f.zone.of(replies)}.encode(nl.CTA_TUPLE_REPLY),
		f.encodeState(),
		nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(f.Status)),
		nl.NewRtAttr(nl.CTA_ID, nl.BEUint32Attr(f.id)),
	} {
		if part != nil {
			msg = append(msg, part.Serialize()...)
		}
	}
	return msg
}

// TestDecodeSCTP reads what kernels without SCTP never send.
func TestDecodeSCTP(t *testing.T) {
	want := Flow{Proto: model.SCTP, Client: client, Frontend: vip, Backend: one, Source: client, Status: SeenReply, Replied: true, id: 3,
		sctp: sctpState{4, 1 << 30, 77}, zone: zone{9, replies}}
	var got Flow
	if !got.decode(message(&want)) || got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// FuzzDecode: a message may be cut short or broken; a flow that is taken from it has
// four addresses of one family.
func FuzzDecode(f *testing.F) {
	whole := message(&Flow{Proto: model.TCP, Client: client, Frontend: vip, Backend: one, Source: client, Status: SeenReply})
	for n := range whole {
		f.Add(whole[:n])
	}
	f.Add(whole)
	mixed := message(&Flow{Proto: model.UDP, Client: client, Frontend: vip, Backend: netip.MustParseAddrPort("[fd00::1]:1"), Source: client})
	f.Add(mixed)
	f.Fuzz(func(t *testing.T, msg []byte) {
		var flow Flow
		if !flow.decode(msg) {
			return
		}
		for _, end := range []netip.AddrPort{flow.Client, flow.Frontend, flow.Backend, flow.Source} {
			if !end.IsValid() || end.Addr().Is4() != flow.Client.Addr().Is4() {
				t.Fatalf("%x: %+v", msg, flow)
			}
		}
		var again Flow
		if !again.decode(message(&flow)) || again.Client != flow.Client || again.Source != flow.Source {
			t.Fatalf("%+v is encoded and read as %+v", flow, again)
		}
	})
}
