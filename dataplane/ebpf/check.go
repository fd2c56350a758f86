package ebpf

import (
	"context"
	"errors"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// check answers kernel.Query.Compare.
func (p *Plane) check(ctx context.Context, of *model.Table) (found kernel.Differences, err error) {
	of = p.expand.Of(of)
	p.opening.Lock()
	s := p.store
	p.opening.Unlock()
	if s == nil {
		return found, errors.New("compare: no maps are open")
	}
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
