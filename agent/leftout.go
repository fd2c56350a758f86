package agent

import (
	"errors"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube/notices"
	"github.com/fairway-net/fairway/model"
)

// fault identifies something left out for as long as it is for the same reason.
type fault struct {
	frontend model.Key
	pool     model.PoolID
	why      string
}

func faultOf(l kernel.LeftOut) fault {
	var full *kernel.FullError
	if errors.As(l.Why, &full) { // whose text has a count
		return fault{l.Frontend, l.Pool, full.What}
	}
	return fault{l.Frontend, l.Pool, l.Why.Error()}
}

// reportLeftOut logs what a sync left out of its table, and writes an Event about
// it: once for as long as it is left out. All else is in force, so the node is
// well.
func (a *Agent) reportLeftOut(table *model.Table, left []kernel.LeftOut) {
	a.metrics.LeftOut.Set(float64(len(left)))
	a.keepLeftOut(table, left)
	before := a.leftOut
	a.leftOut = map[fault]bool{}
	for _, l := range left {
		f := faultOf(l)
		known := before[f] || a.leftOut[f]
		a.leftOut[f] = true
		if known {
			continue
		}
		if name := partName(table, l); name != "" {
			a.events.Report(notices.Notice{Service: compile.ServiceOf(name), Reason: reasonLeftOut, Message: l.Error(), Local: true})
			continue
		}
		a.config.Log.Warn("not forwarded by this node; everything else is in force", "error", l)
		reason := reasonLeftOut
		if kernel.IsFull(l.Why) {
			reason = reasonFull
		}
		a.events.ReportNode(reason, l.Error())
	}
}

// partName is the name of the Service port that was left out; "" if it isn't one.
func partName(table *model.Table, l kernel.LeftOut) string {
	if f := table.Lookup(l.Frontend); f != nil {
		return f.Name
	}
	return l.Pool.Name
}
