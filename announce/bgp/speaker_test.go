package bgp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairway-net/fairway/announce"
)

func peerOf(r *router) announce.Peer {
	address := r.listener.Addr().String()
	return announce.Peer{
		Name: "tor", LocalASN: 64512, ASN: r.asn, Internal: r.asn == 64512, Address: netip.MustParseAddrPort(address).Addr(), Port: r.port(),
		HoldTime: 90 * time.Second, Connect: 100 * time.Millisecond, RouterID: netip.MustParseAddr("192.0.2.7"),
	}
}

func speaker(t *testing.T) *Speaker {
	s := New(func() {}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { s.Close(t.Context(), false) })
	return s
}

func routes(list map[string]announce.Route) map[string]map[netip.Prefix]announce.Route {
	all := map[netip.Prefix]announce.Route{}
	for prefix, r := range list {
		all[netip.MustParsePrefix(prefix)] = r
	}
	return map[string]map[netip.Prefix]announce.Route{"tor": all}
}

// What a router is told, attribute by attribute.
func TestRoutes(t *testing.T) {
	marked := announce.Route{
		LocalPref: 200, Prepend: 2, Weight: 3,
		Communities: announce.Communities{Standard: []uint32{65000<<16 | 1}, Large: [][3]uint32{{1, 2, 3}}},
	}
	tests := []struct {
		name string
		asn  uint32
		host string
		want string
	}{
		{"eBGP", 4200000001, "127.0.0.1", `192.0.2.1/32 {Origin: i} {AsPath: 64512} {Nexthop: 127.0.0.1}
192.0.2.2/32 {Origin: i} {AsPath: 64512 64512 64512} {Nexthop: 127.0.0.1} {Communities: 65000:1} {Extcomms: [64512:3000000]} {LargeCommunity: [ 1:2:3]}`},
		{"iBGP", 64512, "127.0.0.1", `192.0.2.1/32 {Origin: i} {AsPath: } {Nexthop: 127.0.0.1} {LocalPref: 100}
192.0.2.2/32 {Origin: i} {AsPath: } {Nexthop: 127.0.0.1} {LocalPref: 200} {Communities: 65000:1} {Extcomms: [64512:3000000]} {LargeCommunity: [ 1:2:3]}`},
		{"IPv6", 64513, "::1", `2001:db8::1/128 {Origin: i} {AsPath: 64512} {Nexthop: ::1}
2001:db8::2/128 {Origin: i} {AsPath: 64512 64512 64512} {Communities: 65000:1} {Nexthop: ::1} {Extcomms: [64512:3000000]} {LargeCommunity: [ 1:2:3]}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRouter(t, test.asn, test.host)
			s := speaker(t)
			s.Routes(routes(map[string]announce.Route{"192.0.2.1/32": {}, "192.0.2.2/32": marked, "2001:db8::1/128": {}, "2001:db8::2/128": marked}))
			s.Peers([]announce.Peer{peerOf(r)})
			r.await(t, "routes and End-of-RIB", func() bool { return len(r.routes) == 2 && r.ends == 1 })
			if got := r.text(); got != test.want {
				t.Errorf("told:\n%s\nwant:\n%s", got, test.want)
			}
			if s.Routes(routes(map[string]announce.Route{"192.0.2.2/32": {}, "2001:db8::2/128": {}})); len(s.Status()[0].Prefixes) != 1 {
				t.Errorf("after the withdrawal %v are announced", s.Status()[0].Prefixes)
			}
			r.await(t, "the withdrawal", func() bool { return len(r.routes) == 1 })
		})
	}
}

// Ten thousand routes come and go in few messages.
func TestMany(t *testing.T) {
	r := newRouter(t, 64513, "127.0.0.1")
	s := speaker(t)
	s.Peers([]announce.Peer{peerOf(r)})
	all := map[string]announce.Route{}
	for i := range 10000 {
		all[fmt.Sprintf("10.%d.%d.1/32", i/250, i%250)] = announce.Route{}
	}
	s.Routes(routes(all))
	r.await(t, "all routes", func() bool { return len(r.routes) == 10000 })
	if !s.Routes(nil) {
		t.Error("nothing is said to be withdrawn")
	}
	r.await(t, "no route", func() bool { return len(r.routes) == 0 })
	if n := s.Status()[0].Counts.UpdatesSent; n > 200 {
		t.Errorf("%d updates", n)
	}
}

// A session that breaks is held again, and told what changed meanwhile.
func TestAgain(t *testing.T) {
	r := newRouter(t, 64513, "127.0.0.1")
	s := speaker(t)
	s.Peers([]announce.Peer{peerOf(r)})
	s.Routes(routes(map[string]announce.Route{"192.0.2.1/32": {}}))
	r.await(t, "the route", func() bool { return len(r.routes) == 1 })
	r.send(bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_ADMINISTRATIVE_RESET, nil))
	r.await(t, "another session", func() bool { return len(r.opens) == 2 && len(r.routes) == 1 })
	if text := s.Status()[0].LastError; !strings.Contains(text, "administrative reset") {
		t.Errorf("last error %q", text)
	}
	s.Reset("tor", "BFD is down")
	r.await(t, "a third one", func() bool { return len(r.opens) == 3 && len(r.routes) == 1 })
	if text := s.Status()[0].LastError; text != "BFD is down" {
		t.Errorf("last error %q", text)
	}
	r.send(bgp.NewBGPRouteRefreshMessage(bgp.AFI_IP, 0, bgp.SAFI_UNICAST))
	r.await(t, "all routes again", func() bool { return r.ends == 2 })
}

// A router that can't be talked to is told why, and the status says it.
func TestRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*announce.Peer, *router)
		want   string
		told   string
	}{
		{"AS number", func(p *announce.Peer, _ *router) { p.ASN = 64999 }, "AS number 64513, not 64999", "bad peer as"},
		{"internal", func(p *announce.Peer, _ *router) { p.ASN, p.Internal = 0, true }, "spec.dynamicASN does not allow", "bad peer as"},
		{"hold time", func(_ *announce.Peer, r *router) { r.mu.Lock(); defer r.mu.Unlock(); r.hold = 1 }, "hold time is 1 s", "hold time"},
		{"nobody there", func(p *announce.Peer, r *router) { r.listener.Close() }, "refused", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRouter(t, 64513, "127.0.0.1")
			p := peerOf(r)
			test.change(&p, r)
			s := speaker(t)
			s.Peers([]announce.Peer{p})
			r.await(t, "the error", func() bool { return strings.Contains(s.Status()[0].LastError, test.want) })
			r.await(t, "the notification", func() bool { return strings.Contains(strings.ToLower(r.goodbye), test.told) })
		})
	}
}

// One family that the router doesn't take leaves the other one.
func TestOneFamily(t *testing.T) {
	r := newRouter(t, 64513, "127.0.0.1")
	r.families = []bgp.Family{bgp.RF_IPv4_UC}
	p := peerOf(r)
	p.BothFamilies = true
	s := speaker(t)
	s.Routes(routes(map[string]announce.Route{"192.0.2.1/32": {}, "2001:db8::1/128": {}}))
	s.Peers([]announce.Peer{p})
	r.await(t, "the route", func() bool { return len(r.routes) == 1 })
	if note := s.Status()[0].Note; !strings.Contains(note, "takes no routes of ipv6") {
		t.Errorf("note %q", note)
	}
}

// An agent that restarts says nothing; one that ends for good says so.
func TestLeave(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint("keep ", keep), func(t *testing.T) {
			r := newRouter(t, 64513, "127.0.0.1")
			p := peerOf(r)
			p.GracefulRestart = true
			s := speaker(t)
			s.Peers([]announce.Peer{p})
			r.await(t, "the session", func() bool { return r.ends == 1 })
			s.Close(context.WithoutCancel(t.Context()), keep)
			r.await(t, "the end", func() bool { return r.closed == 1 })
			if told := r.goodbye != ""; told == keep {
				t.Errorf("the router was told %q", r.goodbye)
			}
			if !restarting(r.opens[0]) {
				t.Error("the first session of a process does not say that it restarts")
			}
		})
	}
}

func restarting(open *bgp.BGPOpen) bool {
	for _, p := range open.OptParams {
		for _, c := range p.(*bgp.OptionParameterCapability).Capability {
			if g, ok := c.(*bgp.CapGracefulRestart); ok {
				return g.Flags&0x08 != 0 && len(g.Tuples) == 1 && g.Tuples[0].Flags&0x80 != 0
			}
		}
	}
	return false
}

// Peers that don't change keep their sessions.
func TestPeersChange(t *testing.T) {
	r := newRouter(t, 64513, "127.0.0.1")
	s := speaker(t)
	p := peerOf(r)
	s.Peers([]announce.Peer{p})
	r.await(t, "the session", func() bool { return r.ends == 1 })
	p.BFD.Profile = "fast"
	s.Peers([]announce.Peer{p})
	if s.Status()[0].Peer.BFD.Profile != "fast" {
		t.Error("the peer's BFD profile is not in the status")
	}
	p.HoldTime = 9 * time.Second
	s.Peers([]announce.Peer{p})
	r.await(t, "a session with the other hold time", func() bool { return len(r.opens) == 2 && r.opens[1].HoldTime == 9 && r.ends == 1 })
	s.Peers(nil)
	r.await(t, "the end", func() bool { return r.closed == 2 && strings.Contains(strings.ToLower(r.goodbye), "deconfigured") })
	if len(s.Status()) != 0 {
		t.Error("a session is left")
	}
}

// Whatever a router sends, the session ends in order and another one begins.
func TestHostileRouter(t *testing.T) {
	r := newRouter(t, 64513, "127.0.0.1")
	s := speaker(t)
	s.Peers([]announce.Peer{peerOf(r)})
	marker := strings.Repeat("\xff", 16)
	for i, garbage := range []string{"GET / HTTP/1.1\r\nHost: router\r\n\r\n", marker + "\x00\x01\x02", marker + "\xff\xff\x02", marker + "\x00\x13\x63", marker + "\x00\x13\x03"} {
		r.await(t, "the session", func() bool { return r.ends == 1 && len(r.opens) == i+1 })
		r.sendBytes([]byte(marker + "\x00\x20\x02" + strings.Repeat("\xee", 13))) // an UPDATE of rubbish is left alone
		r.sendBytes([]byte(garbage))
	}
	r.await(t, "the session after all", func() bool { return r.ends == 1 && len(r.opens) == 6 })
}

// TestComplaints: a router is told what is wrong with a message whose head makes no sense.
func TestComplaints(t *testing.T) {
	marker := strings.Repeat("\xff", 16)
	for garbage, want := range map[string]uint8{
		strings.Repeat("\x00", 16) + "\x00\x13\x04": bgp.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED,
		marker + "\x00\x02\x04":                     bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH,
		marker + "\xff\xff\x02":                     bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH,
		marker + "\x00\x14\x04\x00":                 bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, // KEEPALIVE has no body
		marker + "\x00\x13\x03":                     bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, // NOTIFICATION has one
		marker + "\x00\x13\x63":                     bgp.BGP_ERROR_SUB_BAD_MESSAGE_TYPE,
	} {
		r := newRouter(t, 64513, "127.0.0.1")
		s := speaker(t)
		s.Peers([]announce.Peer{peerOf(r)})
		r.await(t, "the session", func() bool { return r.ends == 1 })
		r.sendBytes([]byte(garbage))
		text := bgp.NewNotificationErrorCode(bgp.BGP_ERROR_MESSAGE_HEADER_ERROR, want).String()
		r.await(t, "the word of "+text, func() bool { return r.goodbye == text })
	}
}

// TestRefresh: what is withdrawn while the router asks for all routes again is withdrawn.
func TestRefresh(t *testing.T) {
	r := newRouter(t, 64513, "127.0.0.1")
	s := speaker(t)
	s.Routes(routes(map[string]announce.Route{"192.0.2.1/32": {}, "192.0.2.2/32": {}}))
	s.Peers([]announce.Peer{peerOf(r)})
	r.await(t, "the routes", func() bool { return len(r.routes) == 2 && r.ends == 1 })
	c := &connection{session: s.sessions["tor"], agreed: agreement{asn: 64513, fourOctets: true, families: []bgp.Family{bgp.RF_IPv4_UC}}}
	router, node := net.Pipe()
	defer router.Close()
	c.Conn = addressed{node, net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:179"))}
	c.mu.Lock()
	c.wanted = map[netip.Prefix]announce.Route{netip.MustParsePrefix("192.0.2.2/32"): {}}
	c.mu.Unlock()
	asked := make(chan error, 1)
	go func() { asked <- errors.Join(c.tellAgain(), node.Close()) }()
	var told []string
	for {
		kind, body, err := readWhole(router)
		if err != nil {
			break
		}
		u := &bgp.BGPUpdate{}
		if err := u.DecodeFromBytes(body); err != nil || kind != bgp.BGP_MSG_UPDATE {
			t.Fatal(kind, err)
		}
		for _, n := range u.WithdrawnRoutes {
			told = append(told, "-"+n.NLRI.String())
		}
		for _, n := range u.NLRI {
			told = append(told, "+"+n.NLRI.String())
		}
	}
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(told, "-192.0.2.1/32") || !slices.Contains(told, "+192.0.2.2/32") {
		t.Errorf("told %q, want the withdrawal and the route that stays", told)
	}
}

func readWhole(r io.Reader) (kind byte, body []byte, err error) {
	head := make([]byte, bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	body = make([]byte, int(head[16])<<8+int(head[17])-len(head))
	_, err = io.ReadFull(r, body)
	return head[18], body, err
}

// TestOldRouter: a router that knows AS numbers of two bytes only is told the longer one beside.
func TestOldRouter(t *testing.T) {
	r := newRouter(t, 64513, "127.0.0.1")
	r.old = true
	s := speaker(t)
	p := peerOf(r)
	p.LocalASN = 4200000001
	r.asn = bgp.AS_TRANS
	p.ASN = bgp.AS_TRANS
	s.Peers([]announce.Peer{p})
	s.Routes(routes(map[string]announce.Route{"192.0.2.1/32": {Prepend: 1}}))
	r.await(t, "the route", func() bool { return len(r.routes) == 1 })
	if got, want := r.text(), "{AsPath: 23456 23456}"; !strings.Contains(got, want) || !strings.Contains(got, " 4200000001 4200000001") {
		t.Errorf("told %q", got)
	}
}

// TestManyCommunities: prefixes whose communities leave little room in a message are told in
// several; a route that doesn't fit at all is left out, and the session stays.
func TestManyCommunities(t *testing.T) {
	r := newRouter(t, 64513, "127.0.0.1")
	s := speaker(t)
	s.Peers([]announce.Peer{peerOf(r)})
	with := func(n int) (c announce.Communities) {
		for i := range n {
			c.Large = append(c.Large, [3]uint32{64512, 1, uint32(i)})
		}
		return c
	}
	list := map[string]announce.Route{"203.0.113.1/32": {Communities: with(400)}}
	for i := range 200 {
		list[fmt.Sprintf("192.0.2.%d/32", i)] = announce.Route{Communities: with(300)}
	}
	s.Routes(routes(list))
	r.await(t, "the routes that fit", func() bool { return len(r.routes) == 200 })
	if st := s.Status()[0]; st.State != Established || !strings.Contains(st.Note, "203.0.113.1/32 is not announced") {
		t.Errorf("%s, note %q", st.State, st.Note)
	}
}

// TestHopsMove: a route is told again when its next hop is another one, and withdrawn when
// there is none any more.
func TestHopsMove(t *testing.T) {
	router, node := net.Pipe()
	defer router.Close()
	at := func(a string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a)) }
	c := &connection{
		session: &session{
			changed: func() {}, peer: announce.Peer{LocalASN: 64512}, sent: map[netip.Prefix]announce.Route{}, hops: map[bgp.Family]netip.Addr{},
			wanted: map[netip.Prefix]announce.Route{netip.MustParsePrefix("192.0.2.1/32"): {}},
		},
		agreed: agreement{asn: 64500, families: []bgp.Family{bgp.RF_IPv4_UC}},
	}
	updates := make(chan *bgp.BGPUpdate, 10)
	go func() {
		for {
			_, body, err := readWhole(router)
			if err != nil {
				return
			}
			u := &bgp.BGPUpdate{}
			_ = u.DecodeFromBytes(body)
			updates <- u
		}
	}()
	for _, step := range []struct{ local, want string }{
		{"192.0.2.7:179", "{Nexthop: 192.0.2.7}"}, {"192.0.2.8:179", "{Nexthop: 192.0.2.8}"}, {"[2001:db8:dead::7]:179", ""}, {"192.0.2.8:179", "{Nexthop: 192.0.2.8}"},
	} {
		c.Conn = addressed{node, at(step.local)}
		if !c.hopsChanged() {
			t.Errorf("%s: no change is seen", step.local)
		}
		if err := c.tell(); err != nil {
			t.Fatal(err)
		}
		u := <-updates
		switch {
		case step.want == "" && len(u.WithdrawnRoutes) != 1:
			t.Errorf("%s: the route isn't withdrawn", step.local)
		case step.want != "" && !strings.Contains(fmt.Sprint(u.PathAttributes), step.want):
			t.Errorf("%s: told %v, want %s", step.local, u.PathAttributes, step.want)
		}
		if c.hopsChanged() {
			t.Errorf("%s: a change is seen again", step.local)
		}
	}
}

func FuzzOpen(f *testing.F) {
	open, err := bgp.NewBGPOpenMessage(64512, 90, netip.MustParseAddr("192.0.2.1"), []bgp.OptionParameterInterface{
		bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{
			bgp.NewCapMultiProtocol(bgp.RF_IPv6_UC), bgp.NewCapFourOctetASNumber(64512), bgp.NewCapGracefulRestart(true, true, 120, nil),
		}),
	})
	if err != nil {
		f.Fatal(err)
	}
	b, err := open.Body.Serialize()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := &connection{session: &session{peer: announce.Peer{LocalASN: 1, Interface: "x"}}}
		if open, err := parseOpen(b); err == nil {
			_, _ = c.agree(open)
		}
		_ = parseNotification(b)
	})
}

// FuzzStream: whatever a router sends, a message is read to its end and no further, takes no more
// memory than the longest one, and what is none ends the session with a code of RFC 4271.
func FuzzStream(f *testing.F) {
	var all []byte
	for _, m := range []*bgp.BGPMessage{
		bgp.NewBGPKeepAliveMessage(), bgp.NewBGPUpdateMessage(nil, nil, nil), bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 2, []byte("why")),
		bgp.NewBGPRouteRefreshMessage(bgp.AFI_IP, 0, bgp.SAFI_UNICAST),
	} {
		b, err := m.Serialize()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	f.Add(append(bytes.Repeat([]byte{0xff}, 16), 0xff, 0xff, bgp.BGP_MSG_UPDATE))
	f.Add(append(bytes.Repeat([]byte{0xff}, 16), 0, 18, bgp.BGP_MSG_KEEPALIVE))
	f.Fuzz(func(t *testing.T, b []byte) {
		for r := bytes.NewReader(b); ; {
			before := r.Len()
			kind, body, err := readMessage(r)
			var head *headError
			if errors.As(err, &head) && head.subcode != bgp.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED && head.subcode != bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH {
				t.Errorf("the router is told code %d", head.subcode)
			}
			if err != nil {
				return
			}
			if n := before - r.Len(); n < bgp.BGP_HEADER_LENGTH || n > maxMessage || len(body) > n-bgp.BGP_HEADER_LENGTH {
				t.Errorf("a message of type %d takes %d bytes, of which %d are kept", kind, n, len(body))
			}
			if kind == bgp.BGP_MSG_NOTIFICATION && parseNotification(body) == nil {
				t.Error("a notification says nothing")
			}
		}
	})
}
