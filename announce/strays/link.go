package strays

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce/strays/ring"
	"github.com/fairway-net/fairway/announce/wire"
)

const (
	// sayEvery and askEvery are how often nodes say that they are there, and what they
	// have: seldom, and often while a node waits for answers.
	sayEvery = time.Second
	askEvery = 100 * time.Millisecond
)

// all is where messages go: a group address of our own, so that the network cards of other
// machines drop them.
var all = net.HardwareAddr{0x03, 0x46, 0x57, 0x53, 0x54, 0x00}

// link is an interface that leads to routers. What isn't under its lock belongs to the
// goroutine that steps.
type link struct {
	device      *net.Interface
	key         []byte
	connections Connections
	wake        func()
	log         *slog.Logger
	socket      *packet.Conn
	program     *ring.Program // nil as long as nothing is led anywhere
	past        map[netip.Addr]*past
	said        time.Time
	counted     time.Time
	complaint   string        // the last error, as it was logged
	done        chan struct{} // frames are received no more
	closed      chan struct{}
	held        chan struct{} // there may be another node that keeps connections

	mu    sync.Mutex
	group *group
	asked wire.Questions
	due   map[netip.Addr]bool // to be prepared
	fresh []net.HardwareAddr  // nodes that the program doesn't know yet
	left  map[netip.Addr]int
}

func openLink(device *net.Interface, node string, key []byte, connections Connections, wake func(), log *slog.Logger) (*link, error) {
	now := time.Now()
	l := &link{
		device: device, key: key, connections: connections, wake: wake, log: log.With("interface", device.Name),
		past: map[netip.Addr]*past{}, done: make(chan struct{}), closed: make(chan struct{}), held: make(chan struct{}, 1), asked: newQuestions(), group: newGroup(node, device.HardwareAddr, now), due: map[netip.Addr]bool{},
	}
	var err error
	if l.socket, err = listen(device); err != nil {
		return nil, err
	}
	if ring.IsThere(device) { // of an earlier process
		if err := l.open(); err != nil {
			return nil, errors.Join(err, l.socket.Close())
		}
		for a := range l.program.Rings() {
			l.due[a] = true
		}
	}
	go l.receive()
	go l.watch()
	return l, nil
}

func listen(device *net.Interface) (*packet.Conn, error) {
	c, err := packet.Listen(device, packet.Raw, EtherType, nil)
	if err != nil {
		return nil, fmt.Errorf("open packet socket on %s: %w", device.Name, err)
	}
	err = wire.MakeRoom(c, wire.Room)
	if err == nil {
		err = wire.Control(c, func(fd int) error {
			join := &unix.PacketMreq{Ifindex: int32(device.Index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(all))}
			copy(join.Address[:], all)
			return unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, join)
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("join group of messages on %s: %w", device.Name, err), c.Close())
	}
	return c, nil
}

// open loads the program, if it isn't.
func (l *link) open() (err error) {
	if l.program != nil {
		return nil
	}
	if l.program, err = ring.Open(l.device); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh = nil
	for _, m := range l.group.members {
		l.fresh = append(l.fresh, m.mac)
	}
	return nil
}

// receive takes in messages until the socket is closed.
func (l *link) receive() {
	defer close(l.done)
	if err := wire.Receive(l.socket, &l.mu, l.take); err != nil {
		l.log.Warn("what other nodes say of their connections isn't heard any more", "err", err)
	}
}

// take takes in a frame, with the lock held.
func (l *link) take(frame []byte) {
	if len(frame) < wire.EtherHead || slices.Equal(frame[6:12], l.device.HardwareAddr) || l.takeAnswer(frame) {
		return
	}
	m, err := parse(frame[wire.EtherHead:], l.key)
	if err != nil {
		return // not of this cluster
	}
	mac := net.HardwareAddr(slices.Clone(frame[6:12]))
	due, isNew := l.group.receive(time.Now(), mac, m)
	for _, a := range due {
		l.due[a] = true
	}
	if isNew {
		l.fresh = append(l.fresh, mac)
	}
	if len(due) > 0 || isNew || len(m.Entries) > 0 {
		select {
		case l.held <- struct{}{}:
		default:
		}
		l.wake()
	}
}

// step does what is due, and says how soon to do so again. Whatever fails is tried again then.
func (l *link) step(now time.Time) (pause time.Duration) {
	err := l.work(now)
	if err == nil {
		l.complaint = ""
	} else if text := err.Error(); text != l.complaint {
		l.complaint = text
		l.log.Warn("connections that routers move among nodes may end", "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = map[netip.Addr]int{}
	for a, p := range l.past {
		if len(p.flows) > 0 {
			l.left[a] = len(p.flows)
		}
	}
	pause = sayEvery
	if l.group.unprepared(now) > 0 {
		pause = askEvery
	}
	urgent := now.Sub(l.said) < pause
	if !urgent {
		l.said = now
	}
	l.send(l.group.messages(urgent))
	return max(0, pause-now.Sub(l.said))
}

func (l *link) work(now time.Time) error {
	l.mu.Lock()
	due := make([]netip.Addr, 0, len(l.due))
	for a := range l.due {
		due = append(due, a)
	}
	clear(l.due)
	l.mu.Unlock()
	if err := l.prepare(due); err != nil {
		l.mu.Lock()
		for _, a := range due {
			l.due[a] = true
		}
		l.mu.Unlock()
		return err
	}
	if now.Sub(l.counted) >= sayEvery {
		l.counted = now
		if err := l.recount(now); err != nil {
			return err
		}
	}
	return l.follow(now)
}

// follow has the program lead packets as the nodes say.
func (l *link) follow(now time.Time) error {
	l.mu.Lock()
	over := l.group.expire(now)
	rings := map[netip.Addr]ring.Ring{}
	for a, s := range l.group.own {
		if p := l.past[a]; !s.prepared.IsZero() && p != nil && !p.blind {
			rings[a] = l.group.ringOf(now, a)
		}
	}
	var fresh []net.HardwareAddr
	if l.program != nil {
		fresh, l.fresh = l.fresh, nil
	}
	l.mu.Unlock()
	for _, a := range over {
		delete(l.past, a)
	}
	if l.program == nil {
		return nil
	}
	return l.lead(rings, fresh, over)
}

// lead tells the program what has changed, and ends it when nothing is left to lead.
func (l *link) lead(rings map[netip.Addr]ring.Ring, fresh []net.HardwareAddr, over []netip.Addr) error {
	var errs []error
	for _, mac := range fresh {
		errs = append(errs, l.program.Know(mac))
	}
	for a, r := range rings {
		if is, ok := l.program.Rings()[a]; !ok || !is.Equal(r) {
			errs = append(errs, l.program.Lead(a, r, keepAtMost))
		}
	}
	for _, a := range over {
		packets, err := l.program.End(a)
		errs = append(errs, err)
		if packets > 0 {
			l.log.Info("other nodes have no connections of the address left", "address", a, "packets", packets)
		}
	}
	if len(l.program.Rings()) == 0 {
		errs = append(errs, l.program.Close()) // with what it has noted
		l.program = nil
	}
	return errors.Join(errs...)
}

func (l *link) send(list []*message) {
	for _, m := range list {
		body, err := m.marshal(l.key)
		if err != nil {
			l.log.Error("no message is sent to other nodes", "err", err)
			return
		}
		l.write(append(wire.Ethernet(all, l.device.HardwareAddr, EtherType), body...))
	}
}

// write sends a frame. A link that is down takes nothing, and nobody would hear it.
func (l *link) write(frame []byte) {
	_, _ = l.socket.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
}

// ask has all nodes of the link prepare for a change.
func (l *link) ask(addresses []netip.Addr, leaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group.begin(time.Now(), addresses, leaving)
	for _, a := range addresses {
		l.due[a] = true
	}
	l.said = time.Time{}
}

func (l *link) unprepared() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.group.unprepared(time.Now())
}

func (l *link) endAsking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group.end()
}

// close leaves what is led elsewhere to the next process, or ends it.
func (l *link) close(follows bool) error {
	close(l.closed)
	err := l.socket.Close()
	<-l.done
	switch {
	case l.program == nil:
		return err
	case follows:
		return errors.Join(err, l.program.Close())
	}
	return errors.Join(err, l.program.Detach())
}
