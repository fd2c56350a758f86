package simulate

import (
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/link"
)

// answersAlone is how long a kernel answers without an agent; see announce/l2.
const answersAlone = 2 * time.Minute

// machine is a node of the cluster.
type machine struct {
	*world
	name  string
	card  mac
	clock time.Duration // of the machine, beside the true time
	// numbers outlive agents, as the file does that they are in.
	numbers *link.Incarnations
	keys    *link.Keys
	dropped time.Time // that a key was dropped

	agent   *core.Announcer // nil while it is dead
	read    func(now time.Time, frame []byte) link.Take
	turn    int  // of the agent's timer: older ones are void
	stopped bool // the agent doesn't run
	busy    bool // it runs late
	inbox   []frame
	late    []func() // what was to be done while it was stopped

	kernel   kernel
	power    bool
	drained  bool
	out      bool                // it gets no keys any more
	expelled bool                // the others have had the time to notice
	served   map[netip.Addr]bool // the data plane has
	weight   int32
	conns    map[netip.Addr]int // connections of clients that are here
	leads    map[netip.Addr][6]byte
	frames   int // sent
}

// kernel is the program that answers for addresses, with or without an agent (announce/l2/responder).
type kernel struct {
	can         bool // it can be had at all
	owned       map[netip.Addr]uint32
	refreshed   time.Duration
	incarnation uint64 // 0 before the first agent
	asked, seen int
	adopted     bool
}

func (m *machine) mac() mac { return m.card }

// away reports whether the kernel is on its own.
func (m *machine) away() bool { return m.now-m.kernel.refreshed > core.DeadAfter }

// answers reports whether a client that asks for an address hears of this machine.
func (m *machine) answers(a netip.Addr) bool {
	if !m.power {
		return false
	}
	if m.kernel.can {
		_, is := m.kernel.owned[a]
		return is
	}
	return m.agent != nil && !m.stopped && m.agent.Owns(m.time(), a)
}

// isWilling reports whether an agent is there that may announce an address.
func (m *machine) isWilling(a netip.Addr) bool {
	return m.agent != nil && !m.stopped && !m.drained && !m.out && m.served[a]
}

// start begins a new agent.
func (m *machine) start() {
	if m.agent != nil {
		return
	}
	number, _ := m.numbers.Next(m.time().Add(m.clock)) // kept in memory: never fails
	if !m.power {
		m.power, m.leads = true, map[netip.Addr][6]byte{}
	}
	m.trace("%s starts as %d with %d addresses in its kernel", m.name, number, len(m.kernel.owned))
	m.agent = core.New(m.name, number, m.time(), rand.New(rand.NewPCG(m.rand.Uint64(), 0)))
	m.agent.KeepsConnections(true)
	if len(m.leads) > 0 {
		m.agent.Leads(m.leads)
	}
	m.agent.Listen(m.time())
	if !m.out {
		m.keys = link.NewKeys(m.world.keys.published...)
	}
	m.dropped = time.Time{}
	m.read = core.Format.Reader(&link.Cluster{Node: m.name, Keys: m.keys, Foreign: &link.Foreign{}}, m.agent.Peers(), m.take)
	m.stopped, m.inbox, m.late, m.kernel.adopted = false, nil, nil, false
	m.want()
	m.schedule(0)
	life := m.agent
	m.after(m.some(200*time.Millisecond), func() { // connections of an earlier process
		m.awake(life, func() {
			var found []netip.Addr
			for _, a := range m.addresses {
				if m.conns[a] > 0 && !m.anywhere[a] {
					found = append(found, a)
				}
			}
			m.carryOut(m.agent.Keep(found))
		})
	})
	m.countAgain(life)
}

// countAgain counts connections now and then while there is something to count.
func (m *machine) countAgain(life *core.Announcer) {
	m.after(time.Second+m.some(100*time.Millisecond), func() {
		if m.agent != life {
			return
		}
		m.awake(life, func() {
			if len(m.agent.ToCount()) > 0 {
				m.count()
			}
		})
		m.countAgain(life)
	})
}

// count has the connections counted, which takes a moment.
func (m *machine) count() {
	life := m.agent
	asked := map[netip.Addr]bool{}
	for _, a := range m.agent.ToCount() {
		asked[a] = true
	}
	found := map[netip.Addr]int{}
	m.after(m.some(20*time.Millisecond), func() {
		for a := range asked {
			found[a] = m.conns[a]
		}
		m.awake(life, func() { m.carryOut(m.agent.Count(m.time(), asked, found)) })
	})
}

// want says which addresses the machine may own.
func (m *machine) want() {
	wanted := core.Wanted{Candidates: map[netip.Addr]int32{}, Anywhere: map[netip.Addr]bool{}, Weighted: map[netip.Addr]bool{}}
	for a := range m.served {
		wanted.Anywhere[a] = m.anywhere[a]
		if !m.drained {
			wanted.Candidates[a] = m.weight
			wanted.Weighted[a] = m.weight != 0
		}
	}
	var adopted map[netip.Addr]uint32
	if m.kernel.can && !m.kernel.adopted {
		m.kernel.adopted = true
		m.refresh()
		adopted = maps.Clone(m.kernel.owned)
	}
	m.carryOut(m.agent.Want(m.time(), m.senses(), wanted, adopted))
}

func (m *machine) refresh() {
	if m.kernel.can && m.kernel.adopted {
		m.kernel.refreshed, m.kernel.incarnation = m.now, m.agent.Incarnation()
	}
}

// senses are what the agent knows of its machine.
func (m *machine) senses() core.Senses {
	s := core.Senses{KeyDropped: m.dropped}
	for _, f := range m.inbox {
		isClaim := f.kind == kindProbe || f.kind == kindTell
		s.Behind, s.ClaimsBehind = s.Behind || !isClaim, s.ClaimsBehind || isClaim
	}
	if m.kernel.can {
		s.Held = map[netip.Addr]bool{}
		if m.agent.Slept(m.time()) {
			for _, a := range m.agent.Owned() {
				_, s.Held[a] = m.kernel.owned[a]
			}
		}
	}
	return s
}

// schedule has the agent do what is due after a while.
func (m *machine) schedule(d time.Duration) {
	m.turn++
	turn, life := m.turn, m.agent
	m.after(max(d, 0)+m.lag(), func() {
		if m.turn == turn && m.agent == life {
			m.awake(life, m.wake)
		}
	})
}

func (m *machine) wake() {
	now := m.time()
	turn := m.turn
	m.carryOut(m.agent.Wake(now, m.senses()))
	if m.turn == turn { // nothing is in a hurry
		m.schedule(m.agent.Next(now))
	}
}

// lag is how late an agent does what it has to do.
func (m *machine) lag() time.Duration {
	if m.busy {
		return m.some(60 * time.Millisecond)
	}
	return m.some(500 * time.Microsecond)
}

// awake does something at an agent that is still there, or once it goes on.
func (m *machine) awake(life *core.Announcer, what func()) {
	switch {
	case m.agent != life || life == nil:
	case m.stopped:
		m.late = append(m.late, func() { m.awake(life, what) })
	default:
		what()
	}
}

// hear has a frame arrive at the machine: its kernel sees it first.
func (m *machine) hear(f frame) {
	if !m.power {
		return
	}
	if m.kernel.can && m.hearInKernel(f) || m.agent == nil {
		return
	}
	m.inbox = append(m.inbox, f)
	m.readSoon()
}

// hearInKernel reports whether the kernel has answered.
func (m *machine) hearInKernel(f frame) bool {
	k := &m.kernel
	_, owned := k.owned[f.address]
	past := m.now-k.refreshed > answersAlone
	switch f.kind {
	case kindAdvert:
		for _, a := range f.owns {
			if _, is := k.owned[a]; is && m.away() {
				m.trace("the kernel of %s gives %s up", m.name, a)
				delete(k.owned, a)
			}
		}
	case kindTell:
		if owned && m.away() {
			m.trace("the kernel of %s gives %s up to a machine", m.name, f.address)
			delete(k.owned, f.address)
		}
	case kindProbe:
		if owned && !past {
			m.send(frame{kind: kindTell, from: m.card, to: f.from, address: f.address})
			return true
		}
	case kindQuestion:
		if k.incarnation != 0 && !past {
			k.asked++
			m.send(frame{kind: kindAnswer, from: m.card, to: f.from, incarnation: k.incarnation})
			return true
		}
	}
	return false
}

// readSoon has the agent read one of the frames that came.
func (m *machine) readSoon() {
	life := m.agent
	m.after(m.lag(), func() {
		if m.agent != life || m.stopped || len(m.inbox) == 0 {
			return
		}
		f := m.inbox[0]
		m.inbox = m.inbox[1:]
		m.readFrame(f)
	})
}

func (m *machine) readFrame(f frame) {
	now := m.time()
	from := net.HardwareAddr(f.from[:])
	switch f.kind {
	case kindAdvert:
		if take := m.read(now, f.bytes); take != nil {
			take()
		}
	case kindAnswer:
		m.agent.Answered(now, f.from, f.incarnation)
	case kindTell:
		m.carryOut(m.agent.Conflict(now, f.address, from))
	case kindProbe:
		m.carryOut(m.agent.Rival(now, f.address, from))
		if m.agent.Owns(now, f.address) {
			m.send(frame{kind: kindTell, from: m.card, to: f.from, address: f.address})
		}
	}
}

func (m *machine) take(now time.Time, message *link.Message[core.Entry], isNew bool) {
	if a := core.ReadAdvert(message); a != nil {
		m.carryOut(m.agent.Hear(now, a, isNew))
	}
}

// goOn has an agent that was stopped go on. It finds first what came, or what time it is.
func (m *machine) goOn() {
	if !m.stopped {
		return
	}
	m.trace("%s goes on", m.name)
	m.stopped = false
	late := m.late
	m.late = nil
	for range m.inbox {
		m.readSoon()
	}
	if m.oneIn(2) {
		for _, what := range late {
			what()
		}
		return
	}
	m.after(m.some(20*time.Millisecond), func() {
		for _, what := range late {
			what()
		}
	})
}

// kill ends an agent; its kernel goes on.
func (m *machine) kill() {
	m.agent, m.stopped, m.inbox, m.late = nil, false, nil, nil
}

// cutPower ends all that a machine does.
func (m *machine) cutPower() {
	m.kill()
	m.power = false
	m.kernel.owned, m.kernel.incarnation, m.leads = map[netip.Addr]uint32{}, 0, map[netip.Addr][6]byte{}
	clear(m.conns)
}
