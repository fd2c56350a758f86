package compile

import (
	"slices"
	"unique"

	"github.com/fairway-net/fairway/model"
)

// candidate is an endpoint as one Service port on this node sees it.
type candidate struct {
	model.Backend
	state    state
	nodeHint hint
	zoneHint hint
	// weightless endpoints would be ready, but have weight 0.
	weightless bool
	// backup endpoints take new connections only while no other one is ready; standby ones
	// could take some, and take none for that reason.
	backup, standby bool
	// gone endpoints are on a machine that its peers agree is gone; passedOver ones would take
	// new connections otherwise.
	gone, passedOver bool
}

// hint is what an endpoint's hints say of this node or its zone.
type hint uint8

const (
	noHint hint = iota
	otherHint
	ourHint
)

// scratch is memory used again for every pool.
type scratch struct {
	candidates []candidate // sorted, each address and port once
	backends   []model.Backend
	draining   []model.Backend
	everywhere bool // every node chooses among the same: hints aren't followed
	onBackups  bool // there is no ready endpoint but backups
}

// gather lists the endpoints that the slices of a Service name for a port, in
// one family. What several slices name is merged in a way that doesn't depend
// on their order.
func (c *Compiler) gather(svc *service, p *port, ipv6 bool) {
	list := c.scratch.candidates[:0]
	c.scratch.everywhere = svc.spec != nil && svc.spec.overrides.stable
	for _, s := range svc.slices {
		if s.ipv6 != ipv6 {
			continue
		}
		for _, sp := range s.ports {
			if sp.name != p.name || sp.proto != p.proto {
				continue
			}
			for i := range s.endpoints {
				k := c.nodeView.candidate(svc.spec, &s.endpoints[i], sp.port)
				k.gone = c.gone.have(&s.endpoints[i])
				list = append(list, k)
			}
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return a.Compare(b.Backend) })
	c.scratch.candidates = merge(list)
	c.scratch.passOver()
	c.scratch.standBy()
}

// standBy has backups take no new connections while another endpoint is ready, on whichever
// node that is.
func (s *scratch) standBy() {
	isPrimary := func(k candidate) bool { return k.state == ready && !k.backup }
	s.onBackups = !slices.ContainsFunc(s.candidates, isPrimary)
	if s.onBackups {
		return
	}
	for i := range s.candidates {
		if k := &s.candidates[i]; k.backup && k.state > serving {
			k.standby, k.state = true, serving
		}
	}
}

// candidate judges an endpoint by what is known of this node. One of weight 0
// serves whom it has and takes no more.
func (v *nodeView) candidate(s *spec, e *endpoint, port uint16) candidate {
	a := e.address()
	weight := s.overrides.weight(a, e)
	k := candidate{
		Backend: model.Backend{Addr: a, Port: port, Weight: uint16(weight), Local: e.node == v.name},
		state:   e.state,
	}
	k.backup = s.overrides.isBackup(a, e)
	if s.allReady {
		k.state = ready
	}
	if weight == 0 {
		k.weightless = k.state >= serving
		k.state = min(k.state, serving)
	}
	if e.hints != (unique.Handle[hints]{}) {
		h := e.hints.Value()
		k.zoneHint, k.nodeHint = hintFor(h.zones, v.zone), hintFor(h.nodes, v.node)
	}
	return k
}

func hintFor(list, name string) hint {
	switch {
	case list == "":
		return noHint
	case has(list, name):
		return ourHint
	}
	return otherHint
}

// merge makes one of what has the same address and port: the best of each.
func merge(list []candidate) []candidate {
	out := list[:0]
	for _, k := range list {
		if n := len(out) - 1; n >= 0 && out[n].Addr == k.Addr && out[n].Port == k.Port {
			last := &out[n]
			last.Local = last.Local || k.Local
			last.Weight = max(last.Weight, k.Weight)
			last.state = max(last.state, k.state)
			last.nodeHint = max(last.nodeHint, k.nodeHint)
			last.zoneHint = max(last.zoneHint, k.zoneHint)
			last.weightless = last.weightless && k.weightless
			last.backup = last.backup && k.backup
			last.gone = last.gone && k.gone
			continue
		}
		out = append(out, k)
	}
	return out
}

// choose fills in who takes connections of a pool, who only keeps those it has,
// and what the answer is if there is nobody. The lists are scratch memory.
func (s *scratch) choose(p *model.Pool) {
	s.backends, s.draining = s.backends[:0], s.draining[:0]
	judge := s.judge(p.ID.Local)
	usable := false
	for i := range s.candidates {
		k := &s.candidates[i]
		usable = usable || k.state >= servingTerminating
		switch choice := judge(k); {
		case choice == NotLocal:
		case choice.Chosen():
			s.backends = append(s.backends, k.Backend)
		case p.ID.Proto != model.UDP || k.state >= serving:
			b := k.Backend
			b.Weight = 1
			s.draining = append(s.draining, b)
		}
	}
	reduce(s.backends)
	p.Backends, p.Draining = s.backends, s.draining
	if len(s.backends) == 0 && usable {
		p.Empty = model.Drop
	}
}

// judge says which endpoints take new connections, and why: the ready ones,
// those nearby if hints say so; if none is ready, those that still serve while
// they terminate (KEP-1669), for the node's own and all of them separately.
func (s *scratch) judge(local bool) func(*candidate) Choice {
	anyReady := slices.ContainsFunc(s.candidates, func(k candidate) bool { return k.state == ready && (k.Local || !local) })
	hints := !local && !s.everywhere
	byNode := hints && s.hinted(func(k *candidate) hint { return k.nodeHint })
	byZone := hints && !byNode && s.hinted(func(k *candidate) hint { return k.zoneHint })
	return func(k *candidate) Choice {
		switch {
		case local && !k.Local:
			return NotLocal
		case k.state == servingTerminating && !anyReady:
			return ServingTerminating
		case k.state != ready:
			return k.whyNot()
		case byNode && k.nodeHint != ourHint:
			return OtherNode
		case byZone && k.zoneHint != ourHint:
			return OtherZone
		case byNode:
			return ReadySameNode
		case byZone:
			return ReadySameZone
		}
		return Ready
	}
}

// whyNot says why an endpoint that isn't ready takes no new connections.
func (k *candidate) whyNot() Choice {
	switch {
	case k.weightless && k.state == serving:
		return WeightZero
	case k.passedOver:
		return MachineGone
	case k.standby:
		return Backup
	case k.state == terminating || k.state == servingTerminating:
		return Terminating
	}
	return NotReady
}

// hinted reports whether hints are to be followed: every ready endpoint has
// one, and one of them is for us (KEP-2433, KEP-3015).
func (s *scratch) hinted(of func(*candidate) hint) bool {
	ours := false
	for i := range s.candidates {
		if k := &s.candidates[i]; k.state == ready {
			switch of(k) {
			case noHint:
				return false
			case ourHint:
				ours = true
			}
		}
	}
	return ours
}

// reduce divides weights by what they have in common, so that endpoints of the
// same weight have weight 1.
func reduce(list []model.Backend) {
	common := uint16(0)
	for _, b := range list {
		for x, y := common, b.Weight; ; x, y = y, x%y {
			if y == 0 {
				common = x
				break
			}
		}
	}
	if common > 1 {
		for i := range list {
			list[i].Weight /= common
		}
	}
}
