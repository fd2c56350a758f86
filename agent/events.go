package agent

import (
	"fmt"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube/notices"
	"github.com/fairway-net/fairway/model"
)

// events tells the authors of Services, once each, what of them is not done.
type events struct {
	*notices.Writer
	reported *model.Table // of which it was reported what the plane does not support
}

// reasonUnsupported is the reason of Events about what a plane lacks.
const reasonUnsupported = "UnsupportedByMode"

func (e *events) problems(list []compile.Problem) {
	for _, p := range list {
		e.Report(notices.Notice{Service: p.Service, Reason: p.Reason, Message: p.Message})
	}
}

// unsupported reports what changed since the last call and asks for what the
// plane doesn't offer.
func (e *events) unsupported(table *model.Table, lacks []kernel.Unsupported) {
	changes := table.Since(e.reported)
	e.reported = table
	if len(lacks) == 0 {
		return
	}
	seen := map[notices.Notice]bool{}
	note := func(name string, lack kernel.Unsupported) {
		n := notices.Notice{Service: compile.ServiceOf(name), Reason: reasonUnsupported, Message: fmt.Sprintf("%s: %s", lack, lack.Why)}
		if !seen[n] {
			seen[n] = true
			e.Report(n)
		}
	}
	for _, c := range changes.Pools {
		for _, lack := range lacks {
			if c.New != nil && poolAsks(c.New, lack) && (c.Old == nil || !poolAsks(c.Old, lack)) {
				note(c.New.ID.Name, lack)
			}
		}
	}
	for _, c := range changes.Frontends {
		for _, lack := range lacks {
			if c.New != nil && frontendAsks(c.New, lack) && (c.Old == nil || !frontendAsks(c.Old, lack)) {
				note(c.New.Name, lack)
			}
		}
	}
}

func poolAsks(p *model.Pool, lack kernel.Unsupported) bool {
	switch lack.Feature {
	case kernel.Scheduling:
		return p.Scheduler != model.DefaultScheduler && string(p.Scheduler) == lack.Value
	case kernel.Weights:
		for _, b := range p.Backends {
			if b.Weight != p.Backends[0].Weight {
				return true
			}
		}
	case kernel.SCTPProtocol:
		return p.ID.Proto == model.SCTP
	case kernel.ManyClients:
		return p.Affinity > 0
	case kernel.OrphanReset:
		return p.ID.Proto == model.TCP && p.Orphans != model.OrphansKeep
	}
	return false
}

func frontendAsks(f *model.Frontend, lack kernel.Unsupported) bool {
	switch lack.Feature {
	case kernel.DirectReturn:
		return f.Routes[model.FromOutside].Direct
	case kernel.StableFlows:
		return f.Routes[model.FromOutside].Stable
	}
	return lack.Feature == kernel.SilentDrop && f.Sources != nil && (lack.Value == "" || lack.Value == f.Proto.String())
}
