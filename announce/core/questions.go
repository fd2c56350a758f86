package core

import "time"

// tryEvery is how often one of the other nodes' kernels is asked although it isn't silent: the
// node learns by it whether its kernel answers.
const tryEvery = time.Second

func (a *Announcer) tryKernels(now time.Time) {
	if now.Sub(a.tried) < tryEvery {
		return
	}
	a.tried = now
	if node := a.election.nextToTry(now); node != "" {
		a.ask([]string{node})
	}
}
