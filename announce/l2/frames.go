package l2

import (
	"bytes"
	"time"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/link"
)

// takeAdvert takes in what another node says, with the lock held, as the others that take frames
// do.
func (l *Link) takeAdvert(now time.Time, m *link.Message[core.Entry], isNew bool) {
	if a := core.ReadAdvert(m); a != nil {
		if a.Leaving {
			l.cluster.Detector.Left(now, a.Node)
		} else {
			l.cluster.Detector.Heard(now, a.Node, a.Misses)
		}
		l.carryOut(l.core.Hear(now, a, isNew))
	}
}

func (l *Link) takeARP(frame []byte) {
	m, ok := parseARP(frame)
	if !ok || !l.isForUs(frame) || bytes.Equal(m.SenderMAC, l.device.HardwareAddr) {
		return
	}
	now := time.Now()
	l.carryOut(l.core.Conflict(now, m.Sender, m.SenderMAC))
	if m.Operation != arpRequest || m.Sender == m.Target { // which is no question
		return
	}
	if m.Sender.IsUnspecified() {
		l.carryOut(l.core.Rival(now, m.Target, m.SenderMAC))
	}
	if !l.core.Owns(now, m.Target) {
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
		l.carryOut(l.core.Conflict(time.Now(), m.Target, m.FrameSource))
		return
	}
	if !l.core.Owns(time.Now(), m.Target) {
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
