package steering

import (
	"bytes"
	"net"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// Nodes to which packets are led are asked all the time whether they are still there: their
// kernels answer, in the program that leads packets. A client whose connection was at a node
// that is lost gets its reset from the next node then, and isn't left hanging until the
// messages of that node are missed.
const (
	// askPause is how often a node is asked that answers; silentPause how often one that doesn't.
	askPause    = 50 * time.Millisecond
	silentPause = 10 * time.Millisecond
	// lostAsks is how many questions a node leaves without an answer that is lost.
	lostAsks = 3
)

// watched is what is known of a node by its kernel's answers.
type watched struct {
	answers     bool // it has answered before
	gone        bool // it ceased to
	asks        int  // without an answer
	first, last time.Time
}

// hear notes a message. The agent is there in any case; a kernel that ceased to answer, and is
// not lost, is nothing to go by.
func (w *watched) hear() {
	if w.gone {
		w.answers = false
	}
	w.gone, w.asks = false, 0
}

func (w *watched) answer() { w.answers, w.gone, w.asks = true, false, 0 }

// look finds out whether the node is lost, or is to be asked now. Behind says that there is
// something that this node hasn't read yet: that may be answers.
func (w *watched) look(now time.Time, behind bool) (ask, lost bool) {
	since := now.Sub(w.last)
	silent := w.answers && w.asks > 0
	// A node that slept since it asked may have answers that it hasn't read.
	awake := since < 2*silentPause
	switch {
	case silent && since < silentPause || !silent && since < askPause:
		return false, false
	case silent && w.asks >= lostAsks && now.Sub(w.first) >= lostAsks*silentPause && awake && !behind:
		w.gone = true
		return false, true
	}
	if w.asks == 0 {
		w.first = now
	}
	w.asks++
	w.last = now
	return true, false
}

// watch names the nodes that are to be asked, and says whether one is lost, and when to look again.
func (g *group) watch(now time.Time, behind bool) (ask []net.HardwareAddr, lost bool, pause time.Duration) {
	pause = sayEvery
	for _, m := range g.members {
		if len(m.holds) == 0 || m.gone {
			continue
		}
		asks, gone := m.look(now, behind)
		lost = lost || gone
		if asks {
			ask = append(ask, m.mac)
		}
		if pause = min(pause, askPause); m.answers && m.watched.asks > 0 {
			pause = silentPause
		}
	}
	return ask, lost, pause
}

// heardKernel notes that the kernel of the node with a MAC has answered.
func (g *group) heardKernel(mac net.HardwareAddr) {
	for _, m := range g.members {
		if bytes.Equal(m.mac, mac) {
			m.answer()
		}
	}
}

var questionMagic = [4]byte{'F', 'W', 'S', 'Q'}

func newQuestions() link.Questions {
	return link.Questions{Magic: questionMagic, EtherType: EtherType}
}

// watch asks the nodes that packets are led to, until the link is closed.
func (l *uplink) watch() {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-l.closed:
			return
		case <-l.held:
		case <-next.C:
		}
		l.mu.Lock()
		ask, lost, pause := l.group.watch(time.Now(), l.messages.IsBehind() || l.answers.IsBehind())
		if len(ask) > 0 {
			l.asked.Begin()
		}
		for _, mac := range ask {
			l.write(l.asked.Frame(mac, l.device.HardwareAddr))
		}
		l.mu.Unlock()
		if lost {
			l.log.Info("a node that kept connections answers no more; they are lost")
			l.wake()
		}
		next.Reset(pause)
	}
}

// readAnswer reads what another node's kernel answers. Questions are this node's kernel's.
func (l *uplink) readAnswer(now time.Time, frame []byte) link.Take {
	if !bytes.Equal(frame[:6], l.device.HardwareAddr) || !l.asked.IsAnswer(frame) {
		return link.Ignore
	}
	return func() bool {
		if _, err := l.asked.Answer(frame); err != nil {
			return false
		}
		mac := net.HardwareAddr(frame[6:12])
		l.peers.Answered(now, mac)
		l.group.heardKernel(mac)
		return true
	}
}
