package l2

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/packet"

	"github.com/fairway-net/fairway/announce/link"
)

// takeAdvert takes in what another node says, with the lock held, as the others that take frames
// do.
func (l *Link) takeAdvert(now time.Time, m *link.Message[entry], isNew bool) {
	a := readAdvert(m)
	if a == nil {
		return
	}
	if isNew {
		l.meet(now, m.MAC[:])
	}
	l.apply(now, l.election.receive(now, a))
	l.heedConflicts(now, a.Node, a.Entries)
}

// meet is about a node whose MAC wasn't known. What was taken for a stranger's is a node's then,
// whose agent was away.
func (l *Link) meet(now time.Time, mac net.HardwareAddr) {
	l.askNodes([]string{l.peers.NodeOf(mac)})
	l.soon()
	l.conflicts.meet(now, mac.String())
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
	l.noteSender(m.Sender, m.SenderMAC)
	if m.Operation != arpRequest || m.Sender == m.Target { // which is no question
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

func (l *Link) send(adverts []*advert) {
	for _, a := range adverts {
		body, err := advertFormat.Marshal(a.message(l.device.HardwareAddr), l.cluster.Keys)
		if err != nil {
			l.log.Error("no advert is sent", "error", err)
			return
		}
		l.write(l.sockets.adverts, append(link.Ethernet(advertGroup, l.device.HardwareAddr, EtherType), body...))
	}
}

// write sends a frame. What a link that is down doesn't take is no loss: nobody
// would hear it.
func (l *Link) write(c net.PacketConn, frame []byte) {
	to := &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])}
	if _, err := c.WriteTo(frame, to); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errDown) {
		l.counts.failed()
	}
}
