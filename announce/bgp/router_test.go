package bgp

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// router is the other side of sessions: it takes connections one after the other
// and keeps what it is told.
type router struct {
	asn      uint32
	hold     uint16
	families []bgp.Family
	listener net.Listener

	mu      sync.Mutex
	conn    net.Conn
	opens   []*bgp.BGPOpen
	routes  map[string]string // attributes, by prefix
	ends    int               // End-of-RIB markers in this session
	goodbye string            // the last notification
	closed  int               // connections that the speaker has closed
	old     bool              // knows AS numbers of two bytes only
}

func newRouter(t *testing.T, asn uint32, host string) *router {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip("no address ", host)
	}
	r := &router{asn: asn, hold: 90, families: []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC}, listener: l, routes: map[string]string{}}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.serve(conn)
		}
	}()
	return r
}

func (r *router) port() uint16 { return r.listener.Addr().(*net.TCPAddr).AddrPort().Port() }

func (r *router) serve(conn net.Conn) {
	defer conn.Close()
	r.mu.Lock()
	r.conn, r.routes, r.ends = conn, map[string]string{}, 0
	var capabilities []bgp.ParameterCapabilityInterface
	for _, f := range r.families {
		capabilities = append(capabilities, bgp.NewCapMultiProtocol(f))
	}
	if !r.old {
		capabilities = append(capabilities, bgp.NewCapFourOctetASNumber(r.asn))
	}
	capabilities = append(capabilities, bgp.NewCapRouteRefresh(), bgp.NewCapGracefulRestart(false, false, 120, nil))
	open, err := bgp.NewBGPOpenMessage(bgp.AS_TRANS, r.hold, netip.MustParseAddr("192.0.2.255"), []bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(capabilities)})
	r.mu.Unlock()
	if err != nil {
		panic(err)
	}
	r.send(open)
	for {
		head := make([]byte, bgp.BGP_HEADER_LENGTH)
		if _, err := io.ReadFull(conn, head); err != nil {
			r.mu.Lock()
			r.closed++
			r.mu.Unlock()
			return
		}
		var h bgp.BGPHeader
		if err := h.DecodeFromBytes(head); err != nil {
			panic(err)
		}
		body := make([]byte, int(h.Len)-len(head))
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		m, err := bgp.ParseBGPBody(&h, body, &bgp.MarshallingOption{Use2ByteAS: r.old})
		if err != nil {
			panic(err) // the speaker must not send this
		}
		r.take(m)
	}
}

func (r *router) send(m *bgp.BGPMessage) {
	b, err := m.Serialize()
	if err != nil {
		panic(err)
	}
	r.sendBytes(b)
}

func (r *router) sendBytes(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.conn.Write(b)
}

func (r *router) take(m *bgp.BGPMessage) {
	switch body := m.Body.(type) {
	case *bgp.BGPOpen:
		r.mu.Lock()
		r.opens = append(r.opens, body)
		r.mu.Unlock()
		r.send(bgp.NewBGPKeepAliveMessage())
	case *bgp.BGPNotification:
		r.mu.Lock()
		r.goodbye = bgp.NewNotificationErrorCode(body.ErrorCode, body.ErrorSubcode).String()
		r.mu.Unlock()
	case *bgp.BGPUpdate:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.update(body)
	}
}

func (r *router) update(u *bgp.BGPUpdate) {
	if end, _ := u.IsEndOfRib(); end {
		r.ends++
		return
	}
	for _, n := range u.WithdrawnRoutes {
		delete(r.routes, n.NLRI.String())
	}
	var attributes []string
	prefixes := u.NLRI
	for _, a := range u.PathAttributes {
		switch v := a.(type) {
		case *bgp.PathAttributeMpReachNLRI:
			prefixes = append(prefixes, v.Value...)
			attributes = append(attributes, fmt.Sprintf("{Nexthop: %s}", v.Nexthop))
		case *bgp.PathAttributeMpUnreachNLRI:
			for _, n := range v.Value {
				delete(r.routes, n.NLRI.String())
			}
		default:
			attributes = append(attributes, a.String())
		}
	}
	for _, n := range prefixes {
		r.routes[n.NLRI.String()] = strings.Join(attributes, " ")
	}
}

// text is all routes, a line for each.
func (r *router) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for prefix, attributes := range r.routes {
		lines = append(lines, prefix+" "+attributes)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// await waits until a condition holds, which is looked at under the router's lock.
func (r *router) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for late := range wait.Tries(time.Minute) {
		r.mu.Lock()
		ok := condition()
		r.mu.Unlock()
		if ok {
			return
		}
		if late {
			t.Fatalf("%s: not within a minute; routes:\n%s", what, r.text())
		}
	}
}
