package nftables

import (
	"context"
	"regexp"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// check answers kernel.Query.Compare. It reads nothing if nf_tables has changed by
// what this plane did only, since all of it was known. Lists that change while they are
// read may lack a few elements: others than the next time.
func (p *Plane) check(ctx context.Context, of *model.Table) (kernel.Differences, error) {
	var found kernel.Differences
	err := p.withReader(ctx, func(s *socket) error {
		before, err := s.generation()
		if err != nil || p.cache.in(before) {
			return err
		}
		if found, err = p.readAndCompare(s, of); err != nil {
			return err
		}
		after, err := s.generation()
		if err == nil && after == before && len(found.Found) == 0 && !found.Spare {
			p.cache.read(after, &batch{})
		}
		return err
	})
	return found, err
}

func (p *Plane) readAndCompare(s *socket, of *model.Table) (kernel.Differences, error) {
	of = p.expand.Of(of)
	var found kernel.Differences
	s.unsteady = true
	defer func() { s.unsteady = false }()
	c, err := s.readOnce()
	if err != nil {
		return found, err
	}
	if !c.usable() {
		found.Add("table")
		return found, nil
	}
	adopted, next := c.adopt()
	t := p.build(of, adopted, next)
	c.differences(t, &found)
	return found, nil
}

// differences names what repair would write.
func (c *contents) differences(t *target, found *kernel.Differences) {
	p := &plan{}
	p.compare(c, t)
	for _, e := range p.add {
		found.Add("missing", e.set.name, e.key, e.keyEnd, e.data, e.verdict.chain)
	}
	for _, e := range p.remove {
		if ofChoices(e.set) {
			found.Spare = true
		} else {
			found.Add("found", e.set.name, e.key, e.keyEnd, e.data, e.verdict.chain)
		}
	}
	missing, broken, foreign := c.compareChains(t)
	for _, chain := range append(missing, broken...) {
		found.Add("chain", chain.name)
	}
	for _, name := range foreign {
		if spareChain.MatchString(name) {
			found.Spare = true
		} else {
			found.Add("foreign chain", name)
		}
	}
	for name, set := range c.sets {
		if set.ours == nil {
			found.Add("foreign set", name)
		}
	}
}

// Pools that choose and remember alike share chains, which the maps lead to. These
// stay when the last such pool has gone or changed, until somebody compares.
var spareChain = regexp.MustCompile(`^((tcp|udp|sctp)[46]-(random|source|destination)-\d+-|learn-\d)`)

func ofChoices(s *set) bool {
	return strings.HasPrefix(s.name, "choosers-") || strings.HasPrefix(s.name, "learners")
}
