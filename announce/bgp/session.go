package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairway-net/fairway/announce"
)

// Why a session is ended from this side.
type endReason int

const (
	reasonShutdown      endReason = iota // all routes are to go elsewhere
	reasonRestart                        // the process ends; routes stay
	reasonRemoved                        // the peer is gone from the configuration
	reasonConfiguration                  // another session with other settings follows
)

// session is what goes on with one peer.
type session struct {
	peer    announce.Peer
	restart bool // this is the first session of the process
	log     *slog.Logger
	changed func()
	cancel  context.CancelFunc
	done    chan struct{}
	wake    chan struct{} // wanted changed
	stop    chan string   // interrupt, with the reason

	mu      sync.Mutex
	reason  endReason
	wanted  map[netip.Prefix]announce.Route
	sent    map[netip.Prefix]announce.Route
	hops    map[bgp.Family]netip.Addr // that sent has
	waiting []chan struct{}           // closed once what is wanted has been sent
	status  Status
}

func startSession(p announce.Peer, restart bool, routes map[netip.Prefix]announce.Route, changed func(), log *slog.Logger) *session {
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{
		peer: p, restart: restart, log: log.With("peer", p.Name), changed: changed, cancel: cancel, done: make(chan struct{}),
		wake: make(chan struct{}, 1), stop: make(chan string, 1), wanted: maps.Clone(routes), sent: map[netip.Prefix]announce.Route{}, hops: map[bgp.Family]netip.Addr{},
		status: Status{Peer: p, Address: p.Address, ASN: p.ASN, State: Idle},
	}
	go s.run(ctx)
	return s
}

// end ends the session for good. It doesn't wait.
func (s *session) end(reason endReason) {
	s.mu.Lock()
	s.reason = reason
	s.mu.Unlock()
	s.cancel()
}

// interrupt ends the connection; another one follows.
func (s *session) interrupt(why string) {
	select {
	case s.stop <- why:
	default:
	}
}

// set says what to announce. If that withdraws something from a router, what it
// returns is closed once that has been sent; otherwise it returns nil.
func (s *session) set(routes map[netip.Prefix]announce.Route) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if maps.EqualFunc(s.wanted, routes, announce.Route.Equal) {
		return nil
	}
	s.wanted = maps.Clone(routes)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	for prefix := range s.sent {
		if _, ok := routes[prefix]; !ok {
			done := make(chan struct{})
			s.waiting = append(s.waiting, done)
			return done
		}
	}
	return nil
}

func (s *session) current() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Prefixes = slices.SortedFunc(maps.Keys(s.sent), comparePrefixes)
	return status
}

func (s *session) update(change func(*Status)) {
	s.mu.Lock()
	before := s.status
	change(&s.status)
	differs := before.State != s.status.State || before.LastError != s.status.LastError || before.Note != s.status.Note || before.Address != s.status.Address
	s.mu.Unlock()
	if differs {
		s.changed()
	}
}

// run dials and talks until the session is ended.
func (s *session) run(ctx context.Context) {
	defer close(s.done)
	const first = 500 * time.Millisecond
	pause := first
	for ctx.Err() == nil {
		s.update(func(st *Status) { st.State = Connect })
		wasUp, err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		s.ended(err, wasUp)
		if wasUp {
			pause = first
		}
		jittered := pause*3/4 + rand.N(pause/4)
		if pause = min(2*pause, s.peer.Connect); pause <= 0 {
			pause = first
		}
		select {
		case <-ctx.Done():
		case <-time.After(jittered):
		}
	}
}

// ended notes why there is no session any more.
func (s *session) ended(err error, wasUp bool) {
	text := "the router closed the connection"
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	same := s.status.LastError == text && !wasUp
	clear(s.sent)
	clear(s.hops)
	for _, w := range s.waiting {
		close(w) // nothing is announced to the router any more
	}
	s.waiting = nil
	s.mu.Unlock()
	s.update(func(st *Status) {
		st.State, st.Since, st.LastError, st.ErrorAt, st.Note = Idle, time.Time{}, text, time.Now(), ""
	})
	if !same {
		s.log.Warn("no BGP session; dialing again", "reason", text)
	}
}

// once holds one connection and reports whether it was established.
func (s *session) once(ctx context.Context) (wasUp bool, err error) {
	address, err := s.router(ctx)
	if err != nil {
		return false, err
	}
	s.update(func(st *Status) { st.Address = address })
	select {
	case <-s.stop: // of before
	default:
	}
	conn, err := dial(ctx, &s.peer, address)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	c := &connection{session: s, Conn: conn}
	if err := c.open(ctx); err != nil {
		return false, err
	}
	s.restart = false
	s.mu.Lock()
	clear(s.sent)
	clear(s.hops)
	s.mu.Unlock()
	s.update(func(st *Status) {
		st.State, st.Since, st.ASN, st.Note = Established, time.Now(), c.agreed.asn, c.agreed.note
	})
	s.log.Info("BGP session established", "address", address.String(), "asn", c.agreed.asn, "hold-time", c.agreed.hold)
	return true, c.talk(ctx)
}

// connection is one TCP connection with the router.
type connection struct {
	*session
	net.Conn
	agreed agreement
}

// routerTimeout is how long a router may take to answer, or to take in a message.
const routerTimeout = 30 * time.Second

// write sends a message.
func (c *connection) write(m *bgp.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	if err := errors.Join(c.SetWriteDeadline(time.Now().Add(routerTimeout)), writeAll(c.Conn, b)); err != nil {
		return err
	}
	c.update(func(st *Status) { st.Counts.sent(m.Header.Type) })
	return nil
}

func writeAll(conn net.Conn, b []byte) error {
	_, err := conn.Write(b)
	return err
}

// talk keeps an established session until it ends.
func (c *connection) talk(ctx context.Context) error {
	incoming := make(chan error, 1)
	refresh := make(chan struct{}, 1)
	go func() { incoming <- c.read(refresh) }()
	var keepalive <-chan time.Time
	if c.agreed.keepalive > 0 {
		ticker := time.NewTicker(c.agreed.keepalive)
		defer ticker.Stop()
		keepalive = ticker.C
	}
	if err := c.tellAll(); err != nil {
		return err
	}
	hops := time.NewTicker(hopsAgain)
	defer hops.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			c.leave()
			return nil
		case err := <-incoming:
			return err
		case why := <-c.stop:
			const bfdDown = 10 // RFC 9384
			return errors.Join(errors.New(why), c.notify(bgp.BGP_ERROR_CEASE, bfdDown))
		case <-refresh:
			err = c.tellAgain()
		case <-c.wake:
			err = c.tell()
		case <-hops.C:
			if c.hopsChanged() {
				err = c.tell()
			}
		case <-keepalive:
			err = c.write(bgp.NewBGPKeepAliveMessage())
		}
		if err != nil {
			return err
		}
	}
}

// leave says why this side ends the session, unless routes are to stay.
func (c *connection) leave() {
	c.mu.Lock()
	reason := c.reason
	c.mu.Unlock()
	codes := map[endReason]uint8{
		reasonShutdown:      bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN,
		reasonRemoved:       bgp.BGP_ERROR_SUB_PEER_DECONFIGURED,
		reasonConfiguration: bgp.BGP_ERROR_SUB_OTHER_CONFIGURATION_CHANGE,
	}
	code, told := codes[reason]
	if !told || reason == reasonConfiguration && c.agreed.keeps {
		return
	}
	if err := c.notify(bgp.BGP_ERROR_CEASE, code); err != nil {
		c.log.Debug("the router was not told that the session ends", "error", err)
	}
}

func (c *connection) notify(code, subcode uint8) error {
	return c.write(bgp.NewBGPNotificationMessage(code, subcode, nil))
}
