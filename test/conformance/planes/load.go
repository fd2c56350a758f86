package planes

import (
	"fmt"
	"sync"
	"time"
)

// load makes one connection after the other in the background.
type load struct {
	stop  chan struct{}
	ended sync.WaitGroup
	count int   // connections made; to be read after the end
	err   error // why it ended early
}

// leastLoad is how many connections a load has made at least before it ends, so
// that a step in between can't slip through on a slow machine.
const leastLoad = 20

// loadStep does the steps load and unload.
func (r *Run) loadStep(s Step) error {
	name := s.Args[0]
	if s.Verb == "unload" {
		if r.loads[name] == nil {
			return fmt.Errorf("no load %q", name)
		}
		return r.unload(name)
	}
	if r.loads[name] != nil {
		return fmt.Errorf("there is a load %q already", name)
	}
	p, err := parseProbe(s.Args[1:])
	if err != nil {
		return err
	}
	l := &load{stop: make(chan struct{})}
	r.loads[name] = l
	if r.topo == nil || r.cannot(p, s) {
		return nil
	}
	l.ended.Go(func() { l.err = l.run(r.topo, p) })
	return nil
}

// run makes connections until it is told to stop, or one isn't answered.
func (l *load) run(s *Topology, p Probe) error {
	for {
		if answer := s.ask(p, waitTimeout); answer.Outcome != Forwarded {
			return fmt.Errorf("connection %d from %s to %s: %s, expected all to be answered", l.count+1, p.From.Name, p.To, answer)
		}
		l.count++
		if l.count < leastLoad {
			continue
		}
		select {
		case <-l.stop:
			return nil
		case <-time.After(time.Millisecond): // or ports run out
		}
	}
}

func (r *Run) unload(name string) error {
	l := r.loads[name]
	delete(r.loads, name)
	close(l.stop)
	l.ended.Wait()
	if l.err != nil {
		return fmt.Errorf("load %s: %w", name, l.err)
	}
	return nil
}
