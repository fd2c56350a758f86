package l2

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/link"
	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Link is an interface on which addresses are announced.
type Link struct {
	device  *net.Interface
	cluster *link.Cluster
	log     *slog.Logger
	changed func()
	recount func() // has connections counted
	sockets *sockets
	counts  *Counts

	mu      sync.Mutex
	core    *core.Announcer
	kernel  *kernelAnswers // nil where the kernel can't answer
	asked   link.Questions
	program *steering.Program // leads connections to the former owners of addresses; nil if it can't
	// own are the connections that this node has of addresses that it gave up.
	own    map[netip.Addr][]kernel.Connection
	joined map[netip.Addr]bool // whose questions reach this node
	hurry  chan struct{}       // there is something to do at once
}

// Status is what a link knows of an address.
type Status struct {
	core.Status
	Interface string
}

// OpenLink opens an interface.
// Changed is called, without delay and not to be blocked, after each change of
// what Status returns, and recount if connections are to be counted. Alone is for how long the kernel may answer without an agent
// before others take over. At has interfaces where connections are led to their node; it is nil if they can't be counted.
func OpenLink(device *net.Interface, cluster *link.Cluster, alone time.Duration, at *steering.Interfaces, counts *Counts, changed, recount func(), log *slog.Logger) (*Link, error) {
	s, err := openSockets(device)
	if err != nil {
		return nil, err
	}
	l := &Link{
		device: device, cluster: cluster, log: log.With("interface", device.Name), changed: changed, recount: recount, sockets: s, counts: counts,
		asked: newQuestions(), joined: map[netip.Addr]bool{}, own: map[netip.Addr][]kernel.Connection{}, hurry: make(chan struct{}, 1),
	}
	l.core = core.New(cluster.Node, cluster.Begin(time.Now(), l.log), time.Now(), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	l.core.KeepsConnections(at != nil)
	if l.kernel, err = openKernelAnswers(device, alone, counts, l.log); err != nil {
		l.log.Info("if this agent is killed, another node takes its addresses over: the kernel can't answer meanwhile", "reason", err)
	}
	if at != nil {
		if err := l.openProgram(at); err != nil {
			l.log.Warn("connections that are led to their former node may end", "error", err)
		}
	}
	l.core.Listen(time.Now()) // loading programs may have taken as long
	return l, nil
}

// Run announces until ctx is done, and then hands all addresses over: others are
// told, and a moment later nobody is answered any more. If another process follows
// on this node, the kernel goes on to answer instead. An error says that the
// interface is gone.
func (l *Link) Run(ctx context.Context, follows func() bool) error {
	var running sync.WaitGroup
	failed := make(chan error, 4)
	receive := func(receive func() error) {
		running.Go(func() {
			if err := receive(); err != nil {
				failed <- err
			}
		})
	}
	adverts := link.Reader{Lock: &l.mu, Peers: l.core.Peers().MACs, Read: core.Format.Reader(l.cluster, l.core.Peers(), l.takeAdvert)}
	answers := link.Reader{Lock: &l.mu, Peers: l.core.Peers().MACs, Read: l.readAnswer}
	receive(func() error { return l.sockets.adverts.Receive(adverts) })
	receive(func() error { return l.sockets.answers.Receive(answers) })
	receive(func() error { return l.sockets.arpIn.Receive(&l.mu, l.takeARP) })
	receive(func() error { return l.sockets.ndpIn.Receive(&l.mu, l.takeNDP) })
	err := l.keepTicking(ctx, failed)
	followed := err == nil && follows()
	switch {
	case err != nil: // the interface may come back
		err = errors.Join(err, l.kernel.close())
	case followed && l.kernel != nil:
		err = l.kernel.close()
	default:
		l.leave()
		err = l.kernel.detach()
	}
	err = errors.Join(err, l.sockets.close(), l.closeProgram(followed))
	running.Wait()
	return err
}

// keepTicking does what is due until ctx is done, or a socket has failed.
func (l *Link) keepTicking(ctx context.Context, failed <-chan error) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-next.C:
		case <-l.hurry:
		}
		l.mu.Lock()
		now := time.Now()
		l.carryOut(l.core.Wake(now, l.senses(now)))
		next.Reset(l.core.Next(now))
		l.mu.Unlock()
	}
}

// senses are what the announcer has to know of this node. They are used under the lock.
func (l *Link) senses(now time.Time) core.Senses {
	return core.Senses{
		Behind:       l.sockets.adverts.IsBehind() || l.sockets.answers.IsBehind(),
		ClaimsBehind: l.sockets.arpIn.IsBehind() || l.sockets.ndpIn.IsBehind(),
		Held:         l.kernel.held(l.core, now),
		KeyDropped:   l.cluster.Keys.Dropped(),
		IsOut:        l.cluster.Keys.IsOut,
		Misses:       l.cluster.Detector.Missing(),
	}
}

// handOverPause is how long a node that ends still answers at most: others take over in
// the meantime.
const handOverPause = 2 * time.Second

// leavePoll is how often it is looked whether they have.
const leavePoll = 10 * time.Millisecond

func (l *Link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carryOut(l.core.Leave())
	for until := time.Now().Add(handOverPause); l.core.IsAwaited() && time.Now().Before(until); {
		l.mu.Unlock()
		time.Sleep(leavePoll)
		l.mu.Lock()
	}
	l.carryOut(l.core.End())
}

// Want says which addresses this node may own.
func (l *Link) Want(w core.Wanted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.carryOut(l.core.Want(now, l.senses(now), w, l.kernel.adopt(l.core.Incarnation())))
}

// Expect asks whether somebody has addresses that this node is about to announce.
func (l *Link) Expect(addresses map[netip.Addr]int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carryOut(l.core.Expect(time.Now(), addresses))
}

// Status lists what is known of all addresses that this node may own.
func (l *Link) Status() []Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Status
	for _, s := range l.core.Status() {
		list = append(list, Status{Status: s, Interface: l.device.Name})
	}
	return list
}
