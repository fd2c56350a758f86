package haproxy

import (
	"github.com/fairway-net/fairway/ingress/model"
)

// memo is what became of a host's rules. Hosts never change: a table shares with
// the one before those that are the same.
type memo struct {
	listener string
	port     uint16
	entries  []entry
	programs map[string]string
	slots    []slotted
}

type entry struct{ file, key, value string }

// slotted is a backend that was asked for.
type slotted struct {
	pool  string
	kind  kind
	value string
}

// memos are those of a table, and what else it leaves to the next.
type memos struct {
	hosts map[*model.Host]*memo
	pools map[string]*model.Pool
	plan  *plan
}

// recall puts what is known of a host into the plan. It reports false if a backend
// would be another one now.
func (p *planner) recall(s *socket, l *listener, h *model.Host) bool {
	m := p.before.hosts[h]
	if m == nil || m.listener != l.id || m.port != s.model.Port {
		return false
	}
	for _, n := range m.slots {
		if p.backendOf(n.pool, n.kind) != n.value {
			return false
		}
	}
	for _, e := range m.entries {
		p.entries(e.file)[e.key] = e.value
	}
	for name, text := range m.programs {
		p.out.programs[name] = text
	}
	p.memos[h] = m
	return true
}

// set puts an entry into a map.
func (p *planner) set(file, key, value string) {
	p.entries(file)[key] = value
	p.making.entries = append(p.making.entries, entry{file, key, value})
}
