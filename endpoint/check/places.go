package check

// Tenant is on whose behalf an endpoint is checked.
type Tenant struct{ Namespace, Service string }

// places are the checks that may be under way: each is a socket. A namespace may
// have as many under way as places are free, and a Service half of that: so one
// whose endpoints hold every check until its timeout has a third of all, and half
// with its namespace, and something is free for the next at any time. (Choudhury and
// Hahne, dynamic queue length thresholds, 1998.)
type places struct {
	free       int
	namespaces map[string]int
	services   map[Tenant]int
}

func newPlaces(n int) places {
	return places{free: n, namespaces: map[string]int{}, services: map[Tenant]int{}}
}

// take takes a place for t, if it may have one more.
func (p *places) take(t Tenant) bool {
	if p.namespaces[t.Namespace] >= p.free || 2*p.services[t] >= p.free {
		return false
	}
	p.free--
	p.namespaces[t.Namespace]++
	p.services[t]++
	return true
}

// give gives a place of t's back.
func (p *places) give(t Tenant) {
	p.free++
	if p.namespaces[t.Namespace]--; p.namespaces[t.Namespace] == 0 {
		delete(p.namespaces, t.Namespace)
	}
	if p.services[t]--; p.services[t] == 0 {
		delete(p.services, t)
	}
}

// waitingLines are the endpoints that are due and have no place yet, in one line
// for each tenant.
type waitingLines[K comparable] struct {
	order []Tenant
	lines map[Tenant][]*entry[K]
}

func (w *waitingLines[K]) add(e *entry[K]) {
	t := e.target.Tenant
	if _, waits := w.lines[t]; !waits {
		w.order = append(w.order, t)
	}
	w.lines[t] = append(w.lines[t], e)
}

// place takes those out of the lines that get a place, one of each line in turn.
func (w *waitingLines[K]) place(p *places) (ready []*entry[K]) {
	for {
		before, order := len(ready), w.order[:0]
		for _, t := range w.order {
			line := w.lines[t]
			for len(line) > 0 && line[0].gone {
				line = line[1:]
			}
			if len(line) > 0 && p.take(t) {
				line[0].holds = t
				ready, line = append(ready, line[0]), line[1:]
			}
			if w.lines[t] = line; len(line) == 0 {
				delete(w.lines, t)
				continue
			}
			order = append(order, t)
		}
		w.order = order
		if len(ready) == before {
			return ready
		}
	}
}
