package core

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"time"
)

// A machine that is none of the cluster's may have an address. An address that it has before this
// node answers for it is left to it, and tried again later and later, by one node at a time and
// with the times of RFC 5227. A machine that turns up while a node answers for the address is told
// that it is taken (RFC 5227, 2.4 c): the address is the cluster's.

const (
	// firstPause is how long an address is left alone that somebody else has; each time that it is
	// so again the pause doubles, up to mostPause.
	firstPause = 30 * time.Second
	mostPause  = 10 * time.Minute
	// othersPause is how much longer the nodes wait that have only heard of it.
	othersPause = 15 * time.Second
	// rememberedFor is how long an address is claimed with care once nobody else was found.
	rememberedFor = time.Hour
	// defendEvery is how often another machine is told that an address is taken
	// (DEFEND_INTERVAL), and asked whether it goes on to answer; contestedFor is how long it is
	// named after it was heard.
	defendEvery  = 10 * time.Second
	contestedFor = time.Minute
	// carefulMin and carefulMax are between the questions of a claim with care, and carefulWait
	// after the last one (PROBE_MIN, PROBE_MAX, ANNOUNCE_WAIT).
	carefulMin  = time.Second
	carefulMax  = 2 * time.Second
	carefulWait = 2 * time.Second
)

// conflict is somebody else who has an address that this node may own.
type conflict struct {
	mac   string // "" where another node has found it
	by    string // that node
	until time.Time
}

// contest is a machine that says that it has an address that this node answers for.
type contest struct {
	mac                   string
	heard, defends, asked time.Time
}

// conflicts are those of a link.
type conflicts struct {
	now    map[netip.Addr]conflict
	before map[netip.Addr]history
	// contests are of addresses that this node answers for.
	contests map[netip.Addr]contest
}

type history struct {
	times int
	last  time.Time
	mac   string // "" where another node has found it
}

func newConflicts() conflicts {
	return conflicts{now: map[netip.Addr]conflict{}, before: map[netip.Addr]history{}, contests: map[netip.Addr]contest{}}
}

// find notes that another machine has an address: it was heard itself, or another node says so.
// It reports whether that is news.
func (c *conflicts) find(now time.Time, a netip.Addr, mac, by string) bool {
	was, is := c.now[a]
	if is && (by != "" || was.mac == mac) && !now.After(was.until) {
		return false
	}
	h := c.before[a]
	pause := mostPause
	if h.times < 5 { // beyond, the pause would be longer
		pause = min(firstPause<<h.times, mostPause)
	}
	if by != "" {
		pause += othersPause
	}
	c.before[a] = history{h.times + 1, now, cmp.Or(mac, h.mac)}
	c.now[a] = conflict{mac, by, now.Add(pause)}
	return true
}

// needsCare reports whether an address was somebody else's lately.
func (c *conflicts) needsCare(a netip.Addr) bool { return c.before[a].times > 0 }

// expire forgets what is over, and reports whether an address may be tried again.
func (c *conflicts) expire(now time.Time) (again bool) {
	for a, found := range c.now {
		if now.After(found.until) {
			delete(c.now, a)
			again = true
		}
	}
	maps.DeleteFunc(c.before, func(a netip.Addr, h history) bool {
		_, is := c.now[a]
		return !is && now.Sub(h.last) > rememberedFor
	})
	maps.DeleteFunc(c.contests, func(_ netip.Addr, f contest) bool { return now.Sub(f.heard) > contestedFor })
	return again
}

// contested notes that a machine says that it has an address that this node answers for. It says
// whether that is news, and whether the machine is to be told now that the address is taken.
func (c *conflicts) contested(now time.Time, a netip.Addr, mac string) (isNew, defend bool) {
	was, is := c.contests[a]
	isNew = !is || was.mac != mac
	if defend = !is || now.Sub(was.defends) >= defendEvery; defend {
		was.defends = now
	}
	c.contests[a] = contest{mac, now, was.defends, was.asked}
	return isNew, defend
}

// toAsk lists the contested addresses of which it is to be found out again whether another machine
// answers for them.
func (c *conflicts) toAsk(now time.Time) (list []netip.Addr) {
	for _, a := range inOrder(maps.Keys(c.contests)) {
		if f := c.contests[a]; now.Sub(f.asked) >= defendEvery {
			f.asked = now
			c.contests[a] = f
			list = append(list, a)
		}
	}
	return list
}

// meet notes that a MAC is a node's, whose agent was away, and lists the addresses that need no care
// any more.
func (c *conflicts) meet(now time.Time, mac string) (settled []netip.Addr) {
	for a, found := range c.now {
		if found.mac == mac {
			c.now[a] = conflict{mac, "", now}
		}
	}
	for _, a := range inOrder(maps.Keys(c.before)) {
		if c.before[a].mac == mac {
			settled = append(settled, a)
			delete(c.before, a)
		}
	}
	maps.DeleteFunc(c.contests, func(_ netip.Addr, f contest) bool { return f.mac == mac })
	return settled
}

// settle notes that a node answers for an address, and nobody else does: what another node took for
// a stranger's was a node's whose agent was away, or is over.
func (c *conflicts) settle(now time.Time, a netip.Addr) {
	if found, is := c.now[a]; is && found.by != "" {
		found.until = now
		c.now[a] = found
		delete(c.before, a)
	}
}

// Conflict takes in that a machine says that it has an address. It is a conflict if that machine
// is a stranger, and this node asks for the address, or answers for it.
func (a *Announcer) Conflict(now time.Time, address netip.Addr, mac net.HardwareAddr) []Effect {
	a.noteSender(now, address, mac)
	return a.taken()
}

// Rival takes in that a machine asks whether somebody has an address. It is a conflict while this
// node asks the same (RFC 5227, 2.1.1).
func (a *Announcer) Rival(now time.Time, address netip.Addr, mac net.HardwareAddr) []Effect {
	if c := a.claims[address]; c != nil && c.announced.IsZero() {
		a.noteSender(now, address, mac)
	}
	return a.taken()
}

func (a *Announcer) noteSender(now time.Time, address netip.Addr, mac net.HardwareAddr) {
	c := a.claims[address]
	if a.peers.NodeOf(mac) != "" {
		return
	}
	if c != nil && c.confirmed && !c.announced.IsZero() {
		a.defend(now, address, mac.String())
		return
	}
	if c == nil && !a.ahead.has(address, now) {
		return
	}
	if !a.conflicts.find(now, address, mac.String(), "") {
		return
	}
	a.log(slog.LevelWarn, "not announced: another machine has the address; give it another one or take the address out of the pool",
		"address", address, "mac", mac.String(), "retry-in", a.conflicts.now[address].until.Sub(now))
	a.stand(now, a.election.strange(address)...)
	a.do(Changed{})
}

// defend tells a machine, and all others, that an address is taken.
func (a *Announcer) defend(now time.Time, address netip.Addr, mac string) {
	isNew, defend := a.conflicts.contested(now, address, mac)
	if isNew {
		a.log(slog.LevelWarn, "another machine says that it has an address that this node announces: clients may go there; give it another one or take the address out of the pool", "address", address, "mac", mac)
		a.do(Changed{})
	}
	if defend {
		a.do(TellAll{address})
	}
}

// heedConflicts has this node leave addresses alone that another node has found to be a
// stranger's: one node tries them again. A node that has just begun may not know a third one whose
// agent is away, and take its kernel for a stranger.
func (a *Announcer) heedConflicts(now time.Time, node string, entries []Entry) {
	found := false
	for _, e := range entries {
		if e.Owner && !e.Probing {
			a.conflicts.settle(now, e.Address)
		}
		c := a.claims[e.Address]
		if _, wanted := a.wanted[e.Address]; !e.Strange || !wanted || c != nil && !c.announced.IsZero() || a.election.ownerOf(e.Address) != "" && c == nil {
			continue
		}
		found = a.conflicts.find(now, e.Address, "", node) || found
	}
	if found {
		a.stand(now)
		a.do(Changed{})
	}
}
