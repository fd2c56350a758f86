package ebpf

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Check implements dataplane.Checker.
func (p *Plane) Check(ctx context.Context, of *model.Table) (found kernel.Differences, err error) {
	p.opening.Lock()
	s := p.store
	p.opening.Unlock()
	if s == nil {
		return found, errors.New("compare: no maps are open")
	}
	have := newContents()
	for _, t := range tables {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		if have[t], err = s.tables[t].readBeside(); err != nil {
			return found, err
		}
	}
	_, target, err := over(have, of, p.options)
	if err != nil {
		return found, err
	}
	plan := difference(have, target)
	for _, list := range []byTable{plan.put, plan.delete} {
		for t, entries := range list {
			for _, e := range entries {
				found.Add(string(t), e.key, have[t][e.key], e.value)
			}
		}
	}
	return found, nil
}

// ApplyChecked implements dataplane.Checker.
func (p *Plane) ApplyChecked(ctx context.Context, want *model.Table) error {
	return p.apply(ctx, want, false, true)
}

// readBeside is read for whoever has the table while others change it.
func (t *kernelTable) readBeside() (elements map[string]string, err error) {
	m, err := t.lend()
	if err != nil || m == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	lent := kernelTable{name: t.name, outer: t.outer, inner: m}
	return lent.read()
}

// lend opens the table's map once more; nil if there is none yet.
func (t *kernelTable) lend() (*ebpf.Map, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inner == nil {
		return nil, nil
	}
	return t.inner.Clone()
}
