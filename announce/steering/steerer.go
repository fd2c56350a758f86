package steering

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/announce/link"
)

// Router is one that this node has a session with.
type Router struct {
	Address netip.Addr
	VRF     string
}

// Steerer leads packets to the node of their connection, on all links that lead to routers.
type Steerer struct {
	at          *Interfaces
	cluster     *link.Cluster
	connections Connections
	changed     func()
	log         *slog.Logger
	wake        chan struct{}

	mu      sync.Mutex
	routers []Router // nil before the first Set
	stale   bool     // they have changed since links were looked for
	swept   bool     // what an earlier process left on other interfaces is gone
	links   map[int]*uplink
	kept    map[netip.Addr]int
}

// New returns a steerer. Changed is called, not to be
// blocked, after each change of what Kept returns.
func New(at *Interfaces, cluster *link.Cluster, connections Connections, changed func(), log *slog.Logger) *Steerer {
	return &Steerer{at: at, cluster: cluster, connections: connections, changed: changed, log: log, wake: make(chan struct{}, 1), links: map[int]*uplink{}}
}

// Set says which routers this node has sessions with.
func (s *Steerer) Set(routers []Router) {
	s.mu.Lock()
	same := s.routers != nil && slices.Equal(s.routers, routers)
	s.routers = append([]Router{}, routers...)
	s.stale = s.stale || !same
	s.mu.Unlock()
	if !same {
		s.poke()
	}
}

func (s *Steerer) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const (
	// progressTimeout is how long a change waits for other nodes after the last of them has said that
	// it is prepared for an address: with many addresses, each takes its time. One whose agent
	// is away holds up no change.
	progressTimeout = 500 * time.Millisecond
	// awaitTimeout is how long it waits in all.
	awaitTimeout = 20 * time.Second
)

// Prepare has all nodes on the links to routers prepare for this node to begin or to cease
// (leaving) telling routers of addresses. It returns when all are, or after a moment.
func (s *Steerer) Prepare(ctx context.Context, addresses []netip.Addr, leaving bool) {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	s.mu.Lock()
	links := slices.Collect(maps.Values(s.links))
	s.mu.Unlock()
	for _, l := range links {
		l.ask(addresses, leaving)
	}
	s.poke()
	began := time.Now()
	await(ctx, progressTimeout, func() (left int) {
		for _, l := range links {
			left += l.unprepared()
		}
		return left
	})
	// Wait as long again: peers must still apply what they heard.
	select {
	case <-ctx.Done():
	case <-time.After(time.Since(began)):
	}
	for _, l := range links {
		l.endAsking()
	}
}

// await returns when nothing is left, or when that has not become less for some time.
func await(ctx context.Context, progressTimeout time.Duration, count func() (left int)) {
	const look = 5 * time.Millisecond
	least, until := math.MaxInt, time.Time{}
	for ctx.Err() == nil {
		began := time.Now()
		left := count()
		if left < least {
			least, until = left, began.Add(progressTimeout)
		}
		if left == 0 || began.After(until) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(look, 10*time.Since(began))): // it holds up those who prepare
		}
	}
}

// Kept is how many connections of before the last change this node has, by address.
func (s *Steerer) Kept() map[netip.Addr]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.kept)
}

// Run works until ctx is done, in the network namespace that it is called in. Follows is
// asked at the end whether another process goes on.
func (s *Steerer) Run(ctx context.Context, follows func() bool) error {
	runtime.LockOSThread() // sockets are opened on this thread
	defer runtime.UnlockOSThread()
	next := time.NewTimer(0)
	defer next.Stop()
	complaint := ""
	var looked time.Time
	for {
		now := time.Now()
		if s.isDue(now.Sub(looked)) {
			looked = now
			err := s.reconcile()
			if err == nil {
				complaint = ""
			} else if text := err.Error(); text != complaint {
				complaint = text
				s.log.Warn("connections that routers move among nodes may end", "error", err)
			}
		}
		pause := lookAgain
		for _, l := range s.links {
			pause = min(pause, l.step(now))
		}
		s.count()
		next.Reset(pause)
		select {
		case <-ctx.Done():
			return s.close(follows())
		case <-s.wake:
		case <-next.C:
		}
	}
}

// lookAgain is how often links are looked for if nothing is known to have changed.
const lookAgain = 10 * time.Second

// isDue reports whether links are to be looked for.
func (s *Steerer) isDue(since time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.routers != nil && (s.stale || since >= lookAgain)
	s.stale = false
	return due
}

// reconcile opens the links that lead to routers, and closes others.
func (s *Steerer) reconcile() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	devices := map[int]*net.Interface{}
	for _, r := range s.routers {
		if d := deviceTo(r); d != nil {
			devices[d.Index] = d
		}
	}
	var errs []error
	for index, l := range s.links {
		// While there is no way to a router, what is led goes on.
		if _, err := net.InterfaceByIndex(index); err != nil || devices[index] == nil && len(s.routers) == 0 {
			errs = append(errs, l.close(false))
			delete(s.links, index)
		}
	}
	for index, d := range devices {
		if s.links[index] != nil {
			continue
		}
		l, err := openUplink(s.at, d, s.cluster, s.connections, s.poke, s.log)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.links[index] = l
	}
	if !s.swept {
		s.swept = true
		errs = append(errs, s.at.Sweep(Routers))
	}
	return errors.Join(errs...)
}

// deviceTo finds the interface that leads to a router, if that is an Ethernet.
func deviceTo(r Router) *net.Interface {
	if zone := r.Address.Zone(); zone != "" {
		d, err := net.InterfaceByName(zone)
		if err != nil || len(d.HardwareAddr) != 6 {
			return nil
		}
		return d
	}
	routes, err := netlink.RouteGetWithOptions(r.Address.AsSlice(), &netlink.RouteGetOptions{VrfName: r.VRF})
	if err != nil || len(routes) == 0 {
		return nil // there is no way just now
	}
	d, err := net.InterfaceByIndex(routes[0].LinkIndex)
	if err != nil || len(d.HardwareAddr) != 6 {
		return nil
	}
	return d
}

// count adds up the connections of all links, which see the same ones.
func (s *Steerer) count() {
	kept := map[netip.Addr]int{}
	for _, l := range s.links {
		l.mu.Lock()
		for a, n := range l.left {
			kept[a] = max(kept[a], n)
		}
		l.mu.Unlock()
	}
	s.mu.Lock()
	same := maps.Equal(s.kept, kept)
	s.kept = kept
	s.mu.Unlock()
	if !same {
		s.changed()
	}
}

func (s *Steerer) close(follows bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for index, l := range s.links {
		errs = append(errs, l.close(follows))
		delete(s.links, index)
	}
	return errors.Join(errs...)
}
