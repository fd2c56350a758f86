// Package bgp announces prefixes to routers (RFC 4271). It only speaks: it dials
// routers, tells them routes, and reads nothing of theirs but what the protocol
// needs, so that a full table from a router costs no memory. It opens no port, so
// that another BGP speaker may run on the node. The messages are GoBGP's.
//
//	speaker.go   the sessions of this node
//	session.go   one session, from dialing to its end
//	open.go      what the two sides agree on
//	update.go    routes as messages
//	reader.go    messages of the router
//	dial.go      sockets: MD5, TTL, VRF
//	neighbor.go  routers that are named by an interface
package bgp

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairway-net/fairway/announce"
)

// Speaker holds this node's sessions. Nothing runs as long as it has no peers.
type Speaker struct {
	log     *slog.Logger
	changed func()
	began   map[string]bool // peers that had a session in this process

	mu       sync.Mutex
	sessions map[string]*session
	routes   map[string]map[netip.Prefix]announce.Route
}

// New returns a speaker. Changed is called, not to be blocked, after each change
// of what Status returns.
func New(changed func(), log *slog.Logger) *Speaker {
	return &Speaker{log: log, changed: changed, began: map[string]bool{}, sessions: map[string]*session{}}
}

// Peers says which routers to hold sessions with. Sessions with peers that did
// not change go on.
func (s *Speaker) Peers(peers []announce.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[string]announce.Peer{}
	for _, p := range peers {
		wanted[p.Name] = p
	}
	for name, running := range s.sessions {
		p, ok := wanted[name]
		if ok && sameSession(p, running.peer) {
			running.update(func(st *Status) { st.Peer = p })
			continue
		}
		reason := reasonConfiguration
		if !ok {
			reason = reasonRemoved
		}
		running.end(reason)
		delete(s.sessions, name)
		s.changed()
	}
	for name, p := range wanted {
		if s.sessions[name] == nil {
			// The first session of a process is that of a restart, as far as the
			// router can tell.
			s.sessions[name] = startSession(p, !s.began[name], s.routes[name], s.changed, s.log)
			s.began[name] = true
			s.changed()
		}
	}
}

// sameSession reports whether a session can go on: BFD is another's business.
func sameSession(a, b announce.Peer) bool {
	a.BFD, b.BFD = announce.BFD{}, announce.BFD{}
	return a == b
}

// Routes says what to announce to each peer, by its name, and returns once what
// is withdrawn has been sent, or after a moment. It reports whether anything was.
func (s *Speaker) Routes(routes map[string]map[netip.Prefix]announce.Route) (withdrawn bool) {
	s.mu.Lock()
	s.routes = routes
	var sent []<-chan struct{}
	for name, running := range s.sessions {
		if done := running.set(routes[name]); done != nil {
			sent = append(sent, done)
		}
	}
	s.mu.Unlock()
	const moment = 100 * time.Millisecond // a router that takes nothing must not hold up the data plane
	limit := time.NewTimer(moment)
	defer limit.Stop()
	for _, done := range sent {
		select {
		case <-done:
		case <-limit.C:
			return true
		}
	}
	return len(sent) > 0
}

// Status lists the sessions, by peer.
func (s *Speaker) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Status
	for _, name := range slices.Sorted(maps.Keys(s.sessions)) {
		list = append(list, s.sessions[name].current())
	}
	return list
}

// Reset ends the session with a peer, which begins again: its BFD session is down.
func (s *Speaker) Reset(peer, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if running := s.sessions[peer]; running != nil {
		running.interrupt(why)
	}
}

// Close ends all sessions and waits until routers are told, or ctx is done. With
// keep, routers that graceful restart was agreed with are not told: they keep the
// routes, since this node goes on forwarding.
func (s *Speaker) Close(ctx context.Context, keep bool) {
	s.mu.Lock()
	ended := s.sessions
	s.sessions = map[string]*session{}
	s.mu.Unlock()
	for _, running := range ended {
		reason := reasonShutdown
		if keep && running.peer.GracefulRestart {
			reason = reasonRestart
		}
		running.end(reason)
	}
	for _, running := range ended {
		select {
		case <-running.done:
		case <-ctx.Done():
			return
		}
	}
}

// State of a session, as RFC 4271 names them.
type State string

// The states that a session is seen in.
const (
	Idle        State = "Idle"    // it waits before it dials again
	Connect     State = "Connect" // it dials
	OpenSent    State = "OpenSent"
	OpenConfirm State = "OpenConfirm"
	Established State = "Established"
)

// Status is what is known of a session.
type Status struct {
	Peer      announce.Peer
	Address   netip.Addr // of the router; not valid before it is found
	ASN       uint32     // of the router; 0 before it is known
	State     State
	Since     time.Time // of the state Established; zero otherwise
	LastError string    // of the last session, with ErrorAt
	ErrorAt   time.Time
	// Note says what the router doesn't take, such as a family.
	Note     string
	Prefixes []netip.Prefix // that the router has been told, sorted
	Counts   Counts
}

// Counts are messages since the speaker took up the peer.
type Counts struct {
	OpensSent, OpensReceived           uint64
	UpdatesSent, UpdatesReceived       uint64
	KeepalivesSent, KeepalivesReceived uint64
	NotificationsSent                  uint64
	NotificationsReceived              uint64
	RefreshesReceived                  uint64
	Sent, Received                     uint64
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
