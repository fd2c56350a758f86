package l2

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/fairway-net/fairway/announce/wire"
)

// A node that is silent is asked whether its kernel goes on to answer, in a frame of the
// adverts' type: see responder.
func newQuestions() wire.Questions {
	return wire.Questions{Magic: questionMagic, EtherType: EtherType}
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
	for mac, node := range l.members {
		if !slices.Contains(names, node) {
			continue
		}
		if to, err := net.ParseMAC(mac); err == nil {
			l.write(l.sockets.adverts, l.asked.Frame(to, l.device.HardwareAddr))
		}
	}
}

// takeAnswer takes in that another node's kernel answers.
func (l *Link) takeAnswer(frame []byte) {
	if len(frame) < etherHead || !l.isForUs(frame) {
		return
	}
	incarnation, err := l.asked.Answer(frame)
	switch {
	case err == nil:
		l.election.answer(time.Now(), l.members[net.HardwareAddr(frame[6:12]).String()], incarnation)
	case errors.Is(err, wire.ErrSignature):
		l.counts.refused(err)
	}
}
