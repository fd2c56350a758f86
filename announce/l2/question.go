package l2

import (
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// A node that is silent is asked whether its kernel goes on to answer, in a frame of the
// adverts' type: see responder.
func newQuestions() link.Questions {
	return link.Questions{Magic: questionMagic, EtherType: EtherType}
}

var questionMagic = [4]byte{'F', 'W', 'L', 'Q'}

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
	mac := [6]byte(frame[6:12])
	return func() bool {
		incarnation, err := l.asked.Answer(frame)
		if err != nil {
			return false
		}
		l.core.Answered(now, mac, incarnation)
		return true
	}
}
