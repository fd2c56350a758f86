package steering

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/packet"

	"github.com/fairway-net/fairway/announce/link"
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

// countShare is how much longer nothing is counted than counting took.
const countShare = 20

// uplink is an interface that leads to routers. What isn't under its lock belongs to the
// goroutine that steps.
type uplink struct {
	device      *net.Interface
	cluster     *link.Cluster
	connections Connections
	wake        func()
	log         *slog.Logger
	messages    *link.Port
	answers     *link.Port
	program     *Program
	past        map[netip.Addr]*past
	said        time.Time
	counted     time.Time
	took        time.Duration // to count
	complaint   string        // the last error, as it was logged
	receiving   sync.WaitGroup
	closed      chan struct{}
	held        chan struct{} // there may be another node that keeps connections

	mu    sync.Mutex
	group *group
	peers *link.Peers
	asked link.Questions
	due   map[netip.Addr]bool // to be prepared
	left  map[netip.Addr]int
}

func openUplink(at *Interfaces, device *net.Interface, cluster *link.Cluster, connections Connections, wake func(), log *slog.Logger) (*uplink, error) {
	now := time.Now()
	l := &uplink{
		device: device, cluster: cluster, connections: connections, wake: wake, log: log.With("interface", device.Name),
		past: map[netip.Addr]*past{}, peers: link.NewPeers(cluster.Node), closed: make(chan struct{}), held: make(chan struct{}, 1), asked: newQuestions(), group: newGroup(cluster.Node, cluster.Begin(now, log), device.HardwareAddr), due: map[netip.Addr]bool{},
	}
	if err := l.listen(); err != nil {
		return nil, errors.Join(err, l.closePorts())
	}
	var err error
	if l.program, err = at.Open(device, Routers); err != nil {
		return nil, errors.Join(err, l.closePorts())
	}
	for a := range l.program.Rings() { // of an earlier process
		l.due[a] = true
	}
	messages := link.Reader{Lock: &l.mu, Peers: l.peers.MACs, Read: format.Reader(cluster, l.peers, l.take)}
	answers := link.Reader{Lock: &l.mu, Peers: l.peers.MACs, Read: l.readAnswer}
	for port, reader := range map[*link.Port]link.Reader{l.messages: messages, l.answers: answers} {
		l.receiving.Go(func() {
			if err := port.Receive(reader); err != nil {
				l.log.Warn("what other nodes say of their connections isn't heard any more", "error", err)
			}
		})
	}
	go l.watch()
	return l, nil
}

func (l *uplink) listen() (err error) {
	if l.messages, err = link.Open(l.device, EtherType, format.Magic, all); err != nil {
		return err
	}
	l.answers, err = link.Open(l.device, EtherType, questionMagic, nil)
	return err
}

func (l *uplink) closePorts() error {
	var errs []error
	for _, p := range []*link.Port{l.messages, l.answers} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// take takes in a message, with the lock held.
func (l *uplink) take(now time.Time, frame *link.Message[entry], _ bool) {
	m, mac := readMessage(frame), net.HardwareAddr(frame.MAC[:])
	due, isNew := l.group.receive(now, mac, m)
	for _, a := range due {
		l.due[a] = true
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
func (l *uplink) step(now time.Time) (pause time.Duration) {
	err := l.work(now)
	if err == nil {
		l.complaint = ""
	} else if text := err.Error(); text != l.complaint {
		l.complaint = text
		l.log.Warn("connections that routers move among nodes may end", "error", err)
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

func (l *uplink) work(now time.Time) error {
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
	if since := now.Sub(l.counted); since >= sayEvery && since >= countShare*l.took {
		began := time.Now()
		err := l.recount(now)
		l.counted, l.took = now, time.Since(began)
		if err != nil {
			return err
		}
	}
	return l.follow(now)
}

// follow has the program lead packets as the nodes say.
func (l *uplink) follow(now time.Time) error {
	l.mu.Lock()
	over := l.group.expire(now)
	l.peers.Expire(now)
	rings := map[netip.Addr]Ring{}
	for a, s := range l.group.own {
		if p := l.past[a]; !s.prepared.IsZero() && p != nil && !p.blind {
			rings[a] = l.group.ringOf(now, a)
		}
	}
	var nodes []net.HardwareAddr
	for _, m := range l.group.members {
		nodes = append(nodes, m.mac)
	}
	l.mu.Unlock()
	for _, a := range over {
		delete(l.past, a)
	}
	return l.lead(rings, nodes, over)
}

// lead tells the program what has changed.
func (l *uplink) lead(rings map[netip.Addr]Ring, nodes []net.HardwareAddr, over []netip.Addr) error {
	var errs []error
	for _, mac := range nodes {
		errs = append(errs, l.program.Know(mac))
	}
	for a, r := range rings {
		if is, ok := l.program.Ring(a); !ok || !is.Equal(r) {
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
	return errors.Join(errs...)
}

func (l *uplink) send(list []*message) {
	for _, m := range list {
		body, err := format.Marshal(m.frame(l.device.HardwareAddr), l.cluster.Keys)
		if err != nil {
			l.log.Error("no message is sent to other nodes", "error", err)
			return
		}
		l.write(append(link.Ethernet(all, l.device.HardwareAddr, EtherType), body...))
	}
}

// write sends a frame. A link that is down takes nothing, and nobody would hear it.
func (l *uplink) write(frame []byte) {
	_, _ = l.messages.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
}

// ask has all nodes of the link prepare for a change.
func (l *uplink) ask(addresses []netip.Addr, leaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group.begin(time.Now(), addresses, leaving)
	for _, a := range addresses {
		l.due[a] = true
	}
	l.said = time.Time{}
}

func (l *uplink) unprepared() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.group.unprepared(time.Now())
}

func (l *uplink) endAsking() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group.end()
}

// close leaves what is led elsewhere to the next process, or ends it.
func (l *uplink) close(follows bool) error {
	close(l.closed)
	err := l.closePorts()
	l.receiving.Wait()
	if follows {
		l.program.Close()
		return err
	}
	return errors.Join(err, l.program.Detach())
}
