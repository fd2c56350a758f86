package l2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/packet"
)

const (
	tickEvery = Interval / 2
	// Before an address that nobody owned is announced for good, the link is asked so
	// often, at such a distance, whether somebody has it. Who has it answers the first
	// question in less than firstWait, unless it sleeps: then the address is announced
	// already, and given up when the answer comes.
	probes     = 3
	probeEvery = tickEvery
	firstWait  = 10 * time.Millisecond
	// At a take-over all machines are told at once, and again every
	// gratuitousEvery for gratuitousFor, as MetalLB does.
	gratuitousEvery = 1100 * time.Millisecond
	gratuitousFor   = 5 * time.Second
	// conflictPause is how long an address that somebody else has is left alone.
	conflictPause = 30 * time.Second
)

// Link is an interface on which addresses are announced.
type Link struct {
	device  *net.Interface
	key     []byte
	log     *slog.Logger
	changed func()
	recount func() // has connections counted
	sockets *sockets
	counts  *Counts

	mu        sync.Mutex
	election  *election
	wanted    map[netip.Addr]int32
	claims    map[netip.Addr]*claim
	conflicts map[netip.Addr]conflict
	members   map[string]string // MAC to node, of other announcers
	kernel    *kernelAnswers    // nil where the kernel can't answer
	asked     questions
	handoffs  handoffs
	fresh     map[netip.Addr]*claim // not confirmed yet
	hurry     chan struct{}         // there is a fresh claim, or another node
}

// claim is an address that this node owns on the link.
type claim struct {
	probes    int       // still to be sent; after the last one it is announced
	next      time.Time // when to send the next probe, or to tell all machines again
	announced time.Time // zero before
	confirmed bool      // nobody else has it
}

// conflict is somebody else who has an address of ours.
type conflict struct {
	mac   string
	until time.Time
}

// Status is what a link knows of an address.
type Status struct {
	Address   netip.Addr
	Interface string
	// Owner is the node that answers, "" if none is known.
	Owner string
	// Since is when this node began to answer; zero if it doesn't.
	Since time.Time
	// Conflict is the MAC of a stranger who has the address; "" if there is none.
	Conflict string
}

// OpenLink opens an interface. Key signs the adverts, the same on all nodes.
// Changed is called, without delay and not to be blocked, after each change of
// what Status returns, and recount if connections are to be counted. Alone is for how long the kernel may answer without an agent
// before others take over.
func OpenLink(device *net.Interface, node string, key []byte, alone time.Duration, counts *Counts, changed, recount func(), log *slog.Logger) (*Link, error) {
	s, err := openSockets(device)
	if err != nil {
		return nil, err
	}
	l := &Link{
		device: device, key: key, log: log.With("interface", device.Name), changed: changed, recount: recount, sockets: s, counts: counts,
		election: newElection(node, time.Now()), claims: map[netip.Addr]*claim{}, conflicts: map[netip.Addr]conflict{}, members: map[string]string{},
		fresh: map[netip.Addr]*claim{}, hurry: make(chan struct{}, 1),
	}
	if l.kernel, err = openKernelAnswers(device, alone, counts, l.log); err != nil {
		l.log.Info("if this agent is killed, another node takes its addresses over: the kernel can't answer meanwhile", "because", err)
	}
	if l.kernel != nil {
		l.election.held, l.election.kernelAnswers = l.kernel.Owns, true
	}
	if err := l.openHandoffs(time.Now()); err != nil {
		l.log.Warn("connections that are led to their former node may end", "err", err)
	}
	return l, nil
}

// Run announces until ctx is done, and then hands all addresses over: others are
// told, and a moment later nobody is answered any more. If another process follows
// on this node, the kernel goes on to answer instead. An error says that the
// interface is gone.
func (l *Link) Run(ctx context.Context, follows func() bool) error {
	var running sync.WaitGroup
	failed := make(chan error, 3)
	for conn, take := range map[*packet.Conn]func([]byte){l.sockets.adverts: l.takeAdvert, l.sockets.arp: l.takeARP, l.sockets.ndp: l.takeNDP} {
		running.Go(func() {
			if err := receive(conn, take); err != nil {
				failed <- err
			}
		})
	}
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

// receive hands on frames until the socket is closed.
func receive(conn *packet.Conn, take func([]byte)) error {
	buffer := make([]byte, 9216)
	for {
		n, _, err := conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, errDown):
			continue // it may come up again
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		}
		take(buffer[:n])
	}
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
		if lost := l.watch(now); lost || now.Sub(last) >= tickEvery {
			l.tick(now)
			last = now
		}
		pause := min(tickEvery-now.Sub(last), l.election.untilOverdue(now))
		if len(l.fresh) > 0 {
			pause = min(pause, watchEvery)
		}
		next.Reset(pause)
		l.mu.Unlock()
	}
}

func (l *Link) tick(now time.Time) {
	l.apply(now, l.election.tick(now))
	l.send(l.election.adverts(false))
	l.kernel.refresh(l.election.incarnation)
	l.ask(now)
	l.remind(now)
	l.followFormers(now)
}

// watch looks, more often than at all the rest, after owners that may be lost, and after
// addresses that nobody owned. It reports whether a node is lost.
func (l *Link) watch(now time.Time) (lost bool) {
	overdue, lost := l.election.overdue(now)
	l.askNodes(overdue)
	for a, c := range l.fresh {
		if l.claims[a] != c || c.confirmed {
			delete(l.fresh, a)
		} else if !now.Before(c.next) {
			l.attend(now, a, c)
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

// handOverPause is how long a node that ends still answers: others take over in
// the meantime.
const handOverPause = 2 * Interval

func (l *Link) leave() {
	l.mu.Lock()
	l.election.leaving = true
	for range repeats {
		l.send(l.election.adverts(false))
	}
	others := len(l.election.alive(time.Now())) > 0
	l.mu.Unlock()
	if others {
		time.Sleep(handOverPause)
	}
	l.mu.Lock()
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
	l.stand(now, l.election.adopt(now, l.kernel.adopt())...)
}

// stand puts up the wanted addresses, except those that strangers have. What changed
// before is carried out only then: owners are heard of as candidates.
func (l *Link) stand(now time.Time, before ...change) {
	candidates := maps.Clone(l.wanted)
	for a, c := range l.conflicts {
		if _, ok := l.wanted[a]; !ok || now.After(c.until) {
			delete(l.conflicts, a)
			continue
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
	now := time.Now()
	var list []Status
	for a := range l.wanted {
		s := Status{Address: a, Interface: l.device.Name, Owner: l.election.ownerOf(now, a), Conflict: l.conflicts[a].mac}
		if c := l.claims[a]; c != nil {
			s.Since = c.announced
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

// apply begins and ends to answer for addresses.
func (l *Link) apply(now time.Time, changes []change) {
	for _, c := range changes {
		if !c.Owner {
			l.release(c.Address)
			l.log.Info("another node answers for the address now, or none", "address", c.Address)
			l.recount()
			continue
		}
		l.join(c.Address, true)
		claim := &claim{next: now}
		l.claims[c.Address] = claim
		switch {
		case c.Unsettled && c.From != "": // soon
			l.handoffs.unknown[c.Address] = true
			l.recount()
		case c.From != "":
			l.lead(c.Address, c.From)
		}
		if !c.Inherited {
			claim.probes = probes
			l.fresh[c.Address] = claim
			l.soon()
		}
		l.attend(now, c.Address, claim)
	}
	if len(changes) > 0 {
		l.send(l.election.adverts(true))
		l.changed()
	}
}

// release ends the answers for an address.
func (l *Link) release(a netip.Addr) {
	delete(l.claims, a)
	l.kernel.remove(a)
	l.join(a, false)
}

// join takes part in the group of an IPv6 address, or ends that, unless another
// address has the same.
func (l *Link) join(a netip.Addr, in bool) {
	if !a.Is6() {
		return
	}
	for other := range l.claims {
		if other != a && other.Is6() && solicitedNode(other) == solicitedNode(a) {
			return
		}
	}
	if err := l.sockets.join(l.device, a, in, l.kernel != nil); err != nil {
		l.log.Warn("neighbor solicitations may not arrive", "address", a, "err", err)
	}
}

// remind sends the probes and the gratuitous announcements that are due.
func (l *Link) remind(now time.Time) {
	for a, c := range l.claims {
		if !c.next.IsZero() && !now.Before(c.next) {
			l.attend(now, a, c)
		}
	}
	for _, c := range l.conflicts {
		if now.After(c.until) {
			l.stand(now)
			return
		}
	}
}

// attend does what is next for an address.
func (l *Link) attend(now time.Time, a netip.Addr, c *claim) {
	asked := c.probes < probes
	switch {
	case c.probes > 0 && (!asked || !c.announced.IsZero()):
		l.probe(a)
		c.probes--
		c.next = now.Add(probeEvery)
		if !asked {
			c.next = now.Add(firstWait)
		}
		return
	case c.announced.IsZero():
		c.announced = now
		l.kernel.add(a, l.election.own[a])
		l.log.Info("this node answers for the address now", "address", a)
		l.changed()
		c.next = now.Add(gratuitousEvery)
		if c.probes > 0 {
			c.next = now.Add(probeEvery)
		} else {
			l.confirm(a, c)
		}
	case !c.confirmed:
		l.confirm(a, c)
		c.next = c.announced.Add(gratuitousEvery)
		return
	default:
		c.next = now.Add(gratuitousEvery)
		if now.Sub(c.announced) > gratuitousFor {
			c.next = time.Time{}
		}
	}
	l.tellAll(a)
}

// confirm ends looking for another machine that has the address.
func (l *Link) confirm(a netip.Addr, c *claim) {
	c.confirmed = true
	delete(l.fresh, a)
	l.election.confirm(a)
	l.changed()
}

// probe asks the link whether a machine has the address.
func (l *Link) probe(a netip.Addr) {
	if a.Is4() {
		l.write(l.sockets.arp, probeARP(a, l.device.HardwareAddr))
		return
	}
	l.write(l.sockets.ndp, probeNS(a, l.device.HardwareAddr))
}

// tellAll tells all machines that this node has the address.
func (l *Link) tellAll(a netip.Addr) {
	l.counts.gratuitous(a)
	if a.Is4() {
		for _, frame := range gratuitousARP(a, l.device.HardwareAddr) {
			l.write(l.sockets.arp, frame)
		}
		return
	}
	l.write(l.sockets.ndp, unsolicitedNA(a, l.device.HardwareAddr))
}

func (l *Link) takeAdvert(frame []byte) {
	if len(frame) < etherHead || bytes.Equal(frame[6:12], l.device.HardwareAddr) {
		return
	}
	if l.takeAnswer(frame) {
		return
	}
	a, err := parseAdvert(frame[etherHead:], l.key)
	if err != nil {
		l.counts.refused(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.meet(now, net.HardwareAddr(frame[6:12]).String(), a.Node)
	l.apply(now, l.election.receive(now, a))
}

// meet notes which node has a MAC. What was taken for a stranger's is a node's then,
// whose agent was away.
func (l *Link) meet(now time.Time, mac, node string) {
	if l.members[mac] == node {
		return
	}
	l.members[mac] = node
	l.soon()
	for a, c := range l.conflicts {
		if c.mac == mac {
			l.conflicts[a] = conflict{mac, now}
		}
	}
}

// owns reports whether this node answers for an address just now. A process that
// slept doesn't before it has heard what the others did meanwhile.
func (l *Link) owns(a netip.Addr) bool {
	c := l.claims[a]
	return c != nil && !c.announced.IsZero() && time.Since(l.election.lastTick) < deadAfter
}

func (l *Link) takeARP(frame []byte) {
	m, ok := parseARP(frame)
	if !ok || !l.isForUs(frame) || bytes.Equal(m.SenderMAC, l.device.HardwareAddr) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteSender(m.Sender, m.SenderMAC)
	if m.Operation != arpRequest {
		return
	}
	if c := l.claims[m.Target]; c != nil && c.announced.IsZero() && m.Sender.IsUnspecified() {
		l.noteSender(m.Target, m.SenderMAC) // another one probes for the same address (RFC 5227, 2.1.1)
		return
	}
	if !l.owns(m.Target) {
		return
	}
	l.counts.request(m.Target)
	answer := arpMessage{Operation: arpReply, SenderMAC: l.device.HardwareAddr, Sender: m.Target, TargetMAC: m.SenderMAC, Target: m.Sender}
	l.write(l.sockets.arp, answer.frame(m.SenderMAC))
	l.counts.response(m.Target)
}

func (l *Link) takeNDP(frame []byte) {
	m, ok := parseNDP(frame)
	if !ok || !l.isForUs(frame) || bytes.Equal(m.FrameSource, l.device.HardwareAddr) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Type == advertisement {
		l.noteSender(m.Target, m.FrameSource)
		return
	}
	if !l.owns(m.Target) {
		return
	}
	l.counts.request(m.Target)
	l.write(l.sockets.ndp, m.answer(l.device.HardwareAddr))
	l.counts.response(m.Target)
}

// isForUs leaves out what a promiscuous interface hears of others.
func (l *Link) isForUs(frame []byte) bool {
	return frame[0]&1 != 0 || bytes.Equal(frame[:6], l.device.HardwareAddr)
}

// noteSender finds strangers who have an address that this node probes for.
func (l *Link) noteSender(a netip.Addr, mac net.HardwareAddr) {
	c := l.claims[a]
	if c == nil || c.confirmed || l.members[mac.String()] != "" {
		return
	}
	now := time.Now()
	l.conflicts[a] = conflict{mac.String(), now.Add(conflictPause)}
	l.log.Warn("not announced: another machine has the address; give it another one or take the address out of the pool",
		"address", a, "mac", mac)
	l.stand(now)
	l.changed()
}

func (l *Link) send(adverts []*advert) {
	for _, a := range adverts {
		body, err := a.marshal(l.key)
		if err != nil {
			l.log.Error("no advert is sent", "err", err)
			return
		}
		l.write(l.sockets.adverts, append(ethernet(advertGroup, l.device.HardwareAddr, EtherType), body...))
	}
}

// write sends a frame. What a link that is down doesn't take is no loss: nobody
// would hear it.
func (l *Link) write(c *packet.Conn, frame []byte) {
	to := &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])}
	if _, err := c.WriteTo(frame, to); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errDown) {
		l.counts.failed()
	}
}
