package model

import (
	"maps"
	"slices"
)

// WithHosts returns the listener with some of its hosts replaced, by hostname;
// nil takes one away. All else is shared with the listener as it was.
func (l *Listener) WithHosts(changed map[string]*Host) *Listener {
	n := *l
	n.hosts = hosts{all: slices.Clone(l.hosts.all), exact: l.hosts.exact, wild: l.hosts.wild}
	copied := [2]bool{}
	for hostname, h := range changed {
		key, kind, m := hostname, 0, &n.hosts.exact
		if suffix, wild := wildcard(hostname); wild {
			key, kind, m = suffix, 1, &n.hosts.wild
		}
		if !copied[kind] {
			copied[kind], *m = true, maps.Clone(*m)
		}
		i, found := slices.BinarySearchFunc(n.hosts.all, hostname, func(o *Host, hostname string) int { return CompareHostnames(o.Hostname, hostname) })
		switch {
		case h == nil && found:
			n.hosts.all = slices.Delete(n.hosts.all, i, i+1)
			delete(*m, key)
		case h != nil && found:
			n.hosts.all[i], (*m)[key] = h, h
		case h != nil:
			n.hosts.all = slices.Insert(n.hosts.all, i, h)
			(*m)[key] = h
		}
	}
	return &n
}

// With returns the socket with other listeners in the place of some.
func (s *Socket) With(changed map[*Listener]*Listener) *Socket {
	n := *s
	n.Listeners = slices.Clone(s.Listeners)
	for i, l := range n.Listeners {
		if other := changed[l]; other != nil {
			n.Listeners[i] = other
		}
	}
	n.Index()
	return &n
}

// Index has Listener find one of many without looking at each. It is called
// before a table is served.
func (s *Socket) Index() {
	s.byHostname = nil
	if len(s.Listeners) < 8 { // a walk is as fast
		return
	}
	s.byHostname = make(map[string]*Listener, len(s.Listeners))
	for _, l := range s.Listeners {
		if s.byHostname[l.Hostname] == nil { // the first has it
			s.byHostname[l.Hostname] = l
		}
	}
}

// indexed is Listener by the index: the name itself, then what may stand for
// it, the longest first.
func (s *Socket) indexed(name string) *Listener {
	if l := s.byHostname[name]; l != nil && name != "" {
		if _, wild := wildcard(name); !wild {
			return l
		}
	}
	for i := range len(name) {
		if i > 0 && name[i] == '.' {
			if l := s.byHostname["*"+name[i:]]; l != nil {
				return l
			}
			if s.OneLabel {
				break
			}
		}
	}
	return s.byHostname[""]
}
