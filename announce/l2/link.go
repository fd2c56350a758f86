package l2

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

const (
	tickEvery = Interval / 2
	// Before an address that nobody owned is announced for good, the link is asked so
	// often, at such a distance, whether somebody has it. Who has it answers the first
	// question in less than firstWait, unless it sleeps: then the address is announced
	// already, and given up when the answer comes.
	probes     = 3
	probeEvery = tickEvery
	firstWait  = 5 * time.Millisecond
	// At a take-over all machines are told at once, and again every
	// gratuitousEvery for gratuitousFor, as MetalLB does.
	gratuitousEvery = 1100 * time.Millisecond
	gratuitousFor   = 5 * time.Second
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

	mu        sync.Mutex
	election  *election
	wanted    map[netip.Addr]int32
	claims    map[netip.Addr]*claim
	conflicts conflicts
	peers     *link.Peers
	kernel    *kernelAnswers // nil where the kernel can't answer
	asked     link.Questions
	tried     time.Time // that a node's kernel was asked whether it answers at all
	handoffs  handoffs
	due       []netip.Addr          // claimed, and not begun to answer for yet
	fresh     map[netip.Addr]*claim // not confirmed yet
	ahead     ahead
	hurry     chan struct{} // there is a fresh claim, or another node
}

// Status is what a link knows of an address.
type Status struct {
	Address   netip.Addr
	Interface string
	// Owner is the node that answers, "" if none is known.
	Owner string
	// Since is when this node began to answer; zero if it doesn't.
	Since time.Time
	// Conflict is the MAC of a stranger who has the address; "" if there is none. FoundBy is the
	// node that has found one, if this one hasn't.
	Conflict, FoundBy string
}

// OpenLink opens an interface.
// Changed is called, without delay and not to be blocked, after each change of
// what Status returns, and recount if connections are to be counted. Alone is for how long the kernel may answer without an agent
// before others take over.
func OpenLink(device *net.Interface, cluster *link.Cluster, alone time.Duration, counts *Counts, changed, recount func(), log *slog.Logger) (*Link, error) {
	s, err := openSockets(device)
	if err != nil {
		return nil, err
	}
	l := &Link{
		device: device, cluster: cluster, log: log.With("interface", device.Name), changed: changed, recount: recount, sockets: s, counts: counts,
		claims: map[netip.Addr]*claim{}, conflicts: newConflicts(), peers: link.NewPeers(cluster.Node),
		fresh: map[netip.Addr]*claim{}, ahead: ahead{}, asked: newQuestions(), hurry: make(chan struct{}, 1),
	}
	l.election = newElection(cluster.Node, cluster.Begin(time.Now(), l.log), time.Now())
	if l.kernel, err = openKernelAnswers(device, alone, counts, l.log); err != nil {
		l.log.Info("if this agent is killed, another node takes its addresses over: the kernel can't answer meanwhile", "reason", err)
	}
	if l.kernel != nil {
		l.election.held = l.kernel.Owns
	}
	if err := l.openHandoffs(time.Now()); err != nil {
		l.log.Warn("connections that are led to their former node may end", "error", err)
	}
	l.election.listen(time.Now()) // loading programs may have taken as long
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
	adverts := link.Reader{Lock: &l.mu, Peers: l.peers.MACs, Read: advertFormat.Reader(l.cluster, l.peers, l.takeAdvert)}
	answers := link.Reader{Lock: &l.mu, Peers: l.peers.MACs, Read: l.readAnswer}
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
	err = errors.Join(err, l.sockets.close(), l.handoffs.close(followed))
	running.Wait()
	return err
}

func (l *Link) keepTicking(ctx context.Context, failed <-chan error) error {
	next := time.NewTimer(tickEvery)
	defer next.Stop()
	for last := time.Now(); ; {
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
		l.election.behind = l.sockets.adverts.IsBehind() || l.sockets.answers.IsBehind()
		if len(l.due) > 0 {
			l.carryOut(now)
		}
		l.apply(now, l.election.waited(now))
		if lost := l.watch(now); lost || now.Sub(last) >= tickEvery {
			l.tick(now)
			last = now
		}
		pause := min(tickEvery-now.Sub(last), l.election.untilOverdue(now))
		for _, c := range l.fresh {
			pause = min(pause, watchEvery, max(c.next.Sub(now), time.Millisecond))
		}
		next.Reset(pause)
		l.mu.Unlock()
	}
}

func (l *Link) tick(now time.Time) {
	l.apply(now, l.election.tick(now))
	for _, node := range l.peers.Out(now, l.cluster.Keys.Dropped()) {
		l.log.Warn("a node that doesn't know the present key is out: its addresses are taken over", "node", node)
		l.apply(now, l.election.expel(now, node))
	}
	l.peers.Expire(now)
	l.send(l.election.adverts(false))
	l.kernel.refresh(l.election.incarnation)
	l.election.kernelAnswers = l.kernel.answersNodes()
	l.ask(now)
	l.tryKernels(now)
	l.remind(now)
	l.followFormers(now)
}

// watch looks, more often than at all the rest, after owners that may be lost, and after
// addresses that nobody owned. It reports whether a node is lost.
func (l *Link) watch(now time.Time) (lost bool) {
	overdue, lost := l.election.overdue(now)
	l.askNodes(overdue)
	left := atOnce
	for a, c := range l.fresh {
		if l.claims[a] != c || c.confirmed {
			delete(l.fresh, a)
		} else if left > 0 && !now.Before(c.next) {
			l.attend(now, a, c)
			left--
		}
	}
	return lost
}

// soon has the link looked after at once.
func (l *Link) soon() {
	select {
	case l.hurry <- struct{}{}:
	default:
	}
}

// handOverPause is how long a node that ends still answers at most: others take over in
// the meantime.
const handOverPause = 2 * time.Second

func (l *Link) leave() {
	l.mu.Lock()
	l.election.leaving = true
	for range repeats {
		l.send(l.election.adverts(false))
	}
	for until := time.Now().Add(handOverPause); l.election.awaited() && time.Now().Before(until); {
		l.mu.Unlock()
		time.Sleep(watchEvery)
		l.mu.Lock()
	}
	for a := range l.claims {
		l.release(a)
	}
	l.mu.Unlock()
}

// SetCandidates says which addresses this node may own, with their weights.
// Connections of addresses that are anywhere go on at any node; for weighted ones nodes have
// different weights.
func (l *Link) SetCandidates(candidates map[netip.Addr]int32, anywhere, weighted map[netip.Addr]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.election.anywhere, l.election.weighted = anywhere, weighted
	l.wanted = maps.Clone(candidates)
	now := time.Now()
	l.stand(now, l.election.adopt(now, l.kernel.adopt(l.election.incarnation))...)
}

// stand puts up the wanted addresses, except those that strangers have. What changed
// before is carried out only then: owners are heard of as candidates.
func (l *Link) stand(now time.Time, before ...change) {
	candidates := maps.Clone(l.wanted)
	l.conflicts.expire(now)
	for a := range l.conflicts.now {
		if _, ok := l.wanted[a]; !ok && !l.ahead.has(a, now) {
			delete(l.conflicts.now, a)
		}
		delete(candidates, a)
	}
	l.apply(now, append(before, l.election.setCandidates(now, candidates)...))
	l.send(l.election.adverts(true))
}

// Status lists what is known of all addresses that this node may own.
func (l *Link) Status() []Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Status
	for a := range l.wanted {
		s := Status{Address: a, Interface: l.device.Name, Owner: l.election.ownerOf(a), Conflict: l.conflicts.now[a].mac, FoundBy: l.conflicts.now[a].by}
		if c := l.claims[a]; c != nil {
			s.Since = c.announced
			if s.Conflict == "" {
				s.Conflict = l.conflicts.contests[a].mac
			}
		}
		list = append(list, s)
	}
	for a, c := range l.claims {
		if _, ok := l.wanted[a]; !ok { // until another node has taken over
			list = append(list, Status{Address: a, Interface: l.device.Name, Owner: l.election.node, Since: c.announced})
		}
	}
	return list
}
