package l2

import (
	"net"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// A node that is silent is asked whether its kernel goes on to answer, in a frame of the
// adverts' type: see responder.
func newQuestions() link.Questions {
	return link.Questions{Magic: questionMagic, EtherType: EtherType}
}

var questionMagic = [4]byte{'F', 'W', 'L', 'Q'}

// ask asks the nodes that may be without an agent.
func (l *Link) ask(now time.Time) {
	l.askNodes(l.election.ask(now))
}

func (l *Link) askNodes(names []string) {
	if len(names) == 0 {
		return
	}
	l.asked.Begin()
	for _, node := range names {
		if to := l.peers.MACOf(node); to != nil {
			l.write(l.sockets.adverts, l.asked.Frame(to, l.device.HardwareAddr))
		}
	}
}

// tryEvery is how often one of the other nodes' kernels is asked although it isn't silent: the
// node learns by it whether its kernel answers.
const tryEvery = time.Second

func (l *Link) tryKernels(now time.Time) {
	if now.Sub(l.tried) < tryEvery {
		return
	}
	l.tried = now
	if node := l.election.nextToTry(now); node != "" {
		l.askNodes([]string{node})
	}
}

// readAnswer reads what another node's kernel answers. Questions to this one are its kernel's, and
// come here if that doesn't see them.
func (l *Link) readAnswer(now time.Time, frame []byte) link.Take {
	if !l.isForUs(frame) {
		return link.Ignore
	}
	if !l.asked.IsAnswer(frame) {
		return func() bool {
			l.kernel.miss()
			return true
		}
	}
	mac := net.HardwareAddr(frame[6:12])
	return func() bool {
		incarnation, err := l.asked.Answer(frame)
		if err != nil {
			return false
		}
		l.election.answer(now, l.peers.Answered(now, mac), incarnation)
		return true
	}
}
