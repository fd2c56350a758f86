package strays

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
	"github.com/fairway-net/fairway/announce/strays/ring"
)

// Router is one that this node has a session with.
type Router struct {
	Address netip.Addr
	VRF     string
}

// Guide leads packets to the node of their connection, on all links that lead to routers.
type Guide struct {
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

// New returns a guide. Changed is called, not to be
// blocked, after each change of what Kept returns.
func New(cluster *link.Cluster, connections Connections, changed func(), log *slog.Logger) *Guide {
	return &Guide{cluster: cluster, connections: connections, changed: changed, log: log, wake: make(chan struct{}, 1), links: map[int]*uplink{}}
}

// Set says which routers this node has sessions with.
func (g *Guide) Set(routers []Router) {
	g.mu.Lock()
	same := g.routers != nil && slices.Equal(g.routers, routers)
	g.routers = append([]Router{}, routers...)
	g.stale = g.stale || !same
	g.mu.Unlock()
	if !same {
		g.poke()
	}
}

func (g *Guide) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

const (
	// patience is how long a change waits for other nodes after the last of them has said that
	// it is prepared for an address: with many addresses, each takes its time. One whose agent
	// is away holds up no change.
	patience = 500 * time.Millisecond
	// mostPatience is how long it waits in all.
	mostPatience = 20 * time.Second
)

// Prepare has all nodes on the links to routers prepare for this node to begin or to cease
// (leaving) telling routers of addresses. It returns when all are, or after a moment.
func (g *Guide) Prepare(ctx context.Context, addresses []netip.Addr, leaving bool) {
	ctx, cancel := context.WithTimeout(ctx, mostPatience)
	defer cancel()
	g.mu.Lock()
	links := slices.Collect(maps.Values(g.links))
	g.mu.Unlock()
	for _, l := range links {
		l.ask(addresses, leaving)
	}
	g.poke()
	began := time.Now()
	await(ctx, patience, func() (left int) {
		for _, l := range links {
			left += l.unprepared()
		}
		return left
	})
	// What they told each other meanwhile they have yet to act on: that takes no longer.
	select {
	case <-ctx.Done():
	case <-time.After(time.Since(began)):
	}
	for _, l := range links {
		l.endAsking()
	}
}

// await returns when nothing is left, or when that has not become less for some time.
func await(ctx context.Context, patience time.Duration, count func() (left int)) {
	const look = 5 * time.Millisecond
	least, until := math.MaxInt, time.Time{}
	for ctx.Err() == nil {
		began := time.Now()
		left := count()
		if left < least {
			least, until = left, began.Add(patience)
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
func (g *Guide) Kept() map[netip.Addr]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.kept)
}

// Run works until ctx is done, in the network namespace that it is called in. Follows is
// asked at the end whether another process goes on.
func (g *Guide) Run(ctx context.Context, follows func() bool) error {
	runtime.LockOSThread() // sockets are opened on this thread
	defer runtime.UnlockOSThread()
	next := time.NewTimer(0)
	defer next.Stop()
	complaint := ""
	var looked time.Time
	for {
		now := time.Now()
		if g.isDue(now.Sub(looked)) {
			looked = now
			err := g.reconcile()
			if err == nil {
				complaint = ""
			} else if text := err.Error(); text != complaint {
				complaint = text
				g.log.Warn("connections that routers move among nodes may end", "error", err)
			}
		}
		pause := lookAgain
		for _, l := range g.links {
			pause = min(pause, l.step(now))
		}
		g.count()
		next.Reset(pause)
		select {
		case <-ctx.Done():
			return g.close(follows())
		case <-g.wake:
		case <-next.C:
		}
	}
}

// lookAgain is how often links are looked for if nothing is known to have changed.
const lookAgain = 10 * time.Second

// isDue reports whether links are to be looked for.
func (g *Guide) isDue(since time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	due := g.routers != nil && (g.stale || since >= lookAgain)
	g.stale = false
	return due
}

// reconcile opens the links that lead to routers, and closes others.
func (g *Guide) reconcile() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	devices := map[int]*net.Interface{}
	for _, r := range g.routers {
		if d := deviceTo(r); d != nil {
			devices[d.Index] = d
		}
	}
	var errs []error
	for index, l := range g.links {
		// While there is no way to a router, what is led goes on.
		if _, err := net.InterfaceByIndex(index); err != nil || devices[index] == nil && len(g.routers) == 0 {
			errs = append(errs, l.close(false))
			delete(g.links, index)
		}
	}
	for index, d := range devices {
		if g.links[index] != nil {
			continue
		}
		l, err := openUplink(d, g.cluster, g.connections, g.poke, g.log)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		g.links[index] = l
	}
	if !g.swept {
		g.swept = true
		_, err := ring.Sweep(func(index int) bool { return g.links[index] != nil })
		errs = append(errs, err)
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
func (g *Guide) count() {
	kept := map[netip.Addr]int{}
	for _, l := range g.links {
		l.mu.Lock()
		for a, n := range l.left {
			kept[a] = max(kept[a], n)
		}
		l.mu.Unlock()
	}
	g.mu.Lock()
	same := maps.Equal(g.kept, kept)
	g.kept = kept
	g.mu.Unlock()
	if !same {
		g.changed()
	}
}

func (g *Guide) close(follows bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for index, l := range g.links {
		errs = append(errs, l.close(follows))
		delete(g.links, index)
	}
	return errors.Join(errs...)
}
