package l2

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/l2/responder"
)

// answersAlone is for how long the kernel answers without an agent before other
// nodes may take over: as long as routers keep routes (graceful restart).
const answersAlone = 2 * time.Minute

// kernelAnswers has the kernel answer for what a link owns. Nil has it answer for
// nothing: the link's sockets do. It is used under the link's lock.
type kernelAnswers struct {
	*responder.Responder
	counts *Counts
	log    *slog.Logger
	taken  bool // the claims of an earlier process have been taken over
	// asked is how many questions the program has answered, as was seen last, and missed how many
	// it has left to the agent since.
	asked   uint64
	missed  int
	proved  bool // others' questions are answered
	counted map[netip.Addr]uint64
	failed  string // what was logged last
}

func openKernelAnswers(device *net.Interface, alone time.Duration, counts *Counts, log *slog.Logger) (*kernelAnswers, error) {
	r, err := responder.Open(device, responder.Times{Away: core.DeadAfter, Limit: alone})
	if err != nil {
		return nil, err
	}
	return &kernelAnswers{Responder: r, counts: counts, log: log, counted: map[netip.Addr]uint64{}}, nil
}

// note logs a failure once. The link's sockets answer for what the kernel doesn't.
func (k *kernelAnswers) note(err error) {
	if err == nil || err.Error() == k.failed {
		return
	}
	k.failed = err.Error()
	k.log.Warn("the kernel may not answer for this node's addresses while no agent runs", "error", err)
}

// adopt returns, once, what the kernel answers for in the name of an earlier process. The kernel
// learns first that there is an agent again: it would give an address up that this one goes on with.
func (k *kernelAnswers) adopt(incarnation uint64) map[netip.Addr]uint32 {
	if k == nil || k.taken {
		return nil
	}
	k.taken = true
	k.refresh(incarnation)
	claims, err := k.Claims()
	k.note(err)
	epochs := make(map[netip.Addr]uint32, len(claims))
	for a, c := range claims {
		epochs[a], k.counted[a] = c.Epoch, c.Answers
	}
	return epochs
}

func (k *kernelAnswers) refresh(incarnation uint64) {
	if k != nil && k.taken {
		k.note(k.Refresh(incarnation))
	}
}

// mostMissed is how many questions in a row the program may leave to the agent: until it knows of
// the agent, it answers none.
const mostMissed = 3

// answersNodes reports whether the program has been seen to answer other nodes' questions: that it
// is attached doesn't show that frames get to it.
func (k *kernelAnswers) answersNodes() bool {
	if k == nil || !k.taken {
		return false
	}
	asked, err := k.Asked()
	if k.note(err); err == nil && asked > k.asked {
		k.asked, k.missed, k.proved = asked, 0, true
	}
	if k.missed >= mostMissed && k.proved {
		k.proved = false
		k.log.Warn("another program at the interface takes frames before the one that answers for this agent: other nodes take over if the agent ends")
	}
	return k.proved
}

// miss notes that a question came to the agent.
func (k *kernelAnswers) miss() {
	if k != nil && k.taken {
		k.missed++
	}
}

// held are the addresses that the kernel went on to answer for while the agent slept; see
// core.Senses.
func (k *kernelAnswers) held(c *core.Announcer, now time.Time) map[netip.Addr]bool {
	if k == nil {
		return nil
	}
	held := map[netip.Addr]bool{}
	if !c.Slept(now) {
		return held
	}
	for _, a := range c.Owned() {
		held[a] = k.Owns(a)
	}
	return held
}

func (k *kernelAnswers) add(a netip.Addr, epoch uint32) {
	if k == nil || k.Owns(a) { // as it does of an earlier process
		return
	}
	k.counted[a] = 0
	k.note(k.Add(a, epoch))
}

func (k *kernelAnswers) remove(a netip.Addr) {
	if k == nil {
		return
	}
	answers, err := k.Remove(a)
	k.note(err)
	k.count(a, answers)
	delete(k.counted, a)
}

// count adds what the kernel answered to the figures.
func (k *kernelAnswers) count(a netip.Addr, answers uint64) {
	if more := answers - k.counted[a]; answers > k.counted[a] {
		k.counted[a] = answers
		k.counts.add(a, func(n *AddressCounts) { n.Requests += more; n.Responses += more })
	}
}

// close leaves the answers to the kernel.
func (k *kernelAnswers) close() error {
	if k == nil {
		return nil
	}
	return k.Close()
}

// detach ends the answers.
func (k *kernelAnswers) detach() error {
	if k == nil {
		return nil
	}
	return errors.Join(k.Detach(), k.Close())
}

// count takes in what the kernel answered.
func (l *Link) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kernel == nil || len(l.core.Owned()) == 0 {
		return
	}
	claims, err := l.kernel.Claims()
	if err != nil { // it has been closed
		return
	}
	for a, c := range claims {
		l.kernel.count(a, c.Answers)
	}
}
