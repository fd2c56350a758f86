package ebpf

import (
	"context"
	"errors"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// check answers kernel.Query.Compare. What Apply wrote last is compared by its digests:
// that takes no memory, and changes go on. Anything else is read and compared whole.
func (p *Plane) check(ctx context.Context, of *model.Table) (found kernel.Differences, err error) {
	inForce := p.inForce.Load() == of
	p.opening.Lock()
	s := p.store
	p.opening.Unlock()
	if s == nil {
		return found, errors.New("compare: no maps are open")
	}
	if inForce {
		parts, known, err := s.Drift(ctx)
		for _, part := range parts {
			found.Add(part)
		}
		if known || err != nil {
			return found, err
		}
	}
	return p.compareAll(ctx, s, p.expand.Of(of))
}

// compareAll reads all tables.
func (p *Plane) compareAll(ctx context.Context, s *maps.Store, of *model.Table) (found kernel.Differences, err error) {
	have := program.NewContents()
	for _, t := range program.TableNames {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		if have[t], err = s.Tables[t].ReadShared(); err != nil {
			return found, err
		}
	}
	st, err := program.Adopt(have, of, p.options.Scheduler)
	if err != nil {
		return found, err
	}
	for d := range have.Differences(st.All(of)) {
		found.Add(string(d.Table), d.Key, d.Have, d.Value)
	}
	return found, nil
}
