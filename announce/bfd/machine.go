package bfd

import (
	"time"

	"github.com/fairway-net/fairway/announce"
)

// slow is the interval of a session that is not up (RFC 5880, 6.8.3).
const slow = time.Second

// machine is the state of a session. The caller passes in packets and the
// time, and sends what it returns.
type machine struct {
	settings announce.BFD
	local    uint32 // discriminator

	state      State
	diagnostic diagnostic
	polling    bool // the router is to confirm the intervals
	resumable  bool // nothing was sent yet: the router may know this session from before

	remote         uint32
	remoteState    State
	remoteDemand   bool
	remoteReceive  time.Duration
	remoteTransmit time.Duration
	remoteMultiply uint8
	heard          time.Time // of the last packet
}

func newMachine(settings announce.BFD, local uint32) *machine {
	return &machine{settings: settings, local: local, state: Down, resumable: true, remoteReceive: time.Microsecond}
}

// receive takes in a packet and reports whether one must be sent at once.
func (m *machine) receive(now time.Time, p packet) (answer bool) {
	if p.Your != 0 && p.Your != m.local {
		return false
	}
	m.remote, m.remoteState, m.remoteDemand = p.My, p.State, p.Demand
	m.remoteReceive, m.remoteTransmit, m.remoteMultiply = p.RequiredReceive, p.DesiredTransmit, p.Multiplier
	m.heard = now
	if p.Final {
		m.polling = false
	}
	before := m.state
	switch {
	case p.State == AdminDown:
		if m.state != Down {
			m.to(Down, diagNeighborDown)
		}
	case m.state == Down && p.State == Down:
		m.to(Init, m.diagnostic)
	case m.state == Down && p.State == Init:
		m.to(Up, diagNone)
	case m.state == Down && p.State == Up && m.resumable && p.Your == m.local:
		m.to(Up, diagNone) // the agent has begun anew, and the router noticed nothing
	case m.state == Init && p.State >= Init:
		m.to(Up, diagNone)
	case m.state == Up && p.State == Down:
		m.to(Down, diagNeighborDown)
	}
	return p.Poll || before != m.state
}

func (m *machine) to(s State, d diagnostic) {
	m.polling = s == Up
	m.state, m.diagnostic = s, d
}

// expire notes that the router is silent, and reports whether that is news.
func (m *machine) expire(now time.Time) bool {
	if m.state == Up || m.state == Init {
		if now.Before(m.deadline()) {
			return false
		}
		m.to(Down, diagTimeout)
		m.remote = 0
		return true
	}
	return false
}

// deadline is when the session is down if no packet comes.
func (m *machine) deadline() time.Time {
	return m.heard.Add(time.Duration(m.remoteMultiply) * max(m.settings.Receive, m.remoteTransmit))
}

// desired is the interval that this side would like to send at.
func (m *machine) desired() time.Duration {
	if m.state != Up {
		return max(slow, m.settings.Transmit)
	}
	return m.settings.Transmit
}

// interval is the time between packets, before jitter; 0 says that none are sent.
func (m *machine) interval() time.Duration {
	demanded := m.remoteDemand && m.state == Up && m.remoteState == Up && !m.polling // RFC 5880, 6.8.7
	if demanded || m.remoteReceive == 0 || m.settings.Passive && m.remote == 0 {
		return 0
	}
	return max(m.desired(), m.remoteReceive)
}

// packet is what to send now.
func (m *machine) packet(final bool) packet {
	m.resumable = false
	return packet{
		Diagnostic: m.diagnostic, State: m.state, Poll: m.polling && !final, Final: final, Independent: true,
		Multiplier: m.settings.Multiplier, My: m.local, Your: m.remote,
		DesiredTransmit: m.desired(), RequiredReceive: m.settings.Receive,
	}
}
