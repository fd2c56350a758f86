package agent

import (
	"slices"
	"time"

	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// registerCollectors has /metrics ask this agent, until what it returns is called.
func (a *Agent) registerCollectors() (unregister func()) {
	collectors := append(metrics.Collectors(metrics.Source{
		Table: a.inForce.Load, Plane: a.planes.reader, Log: a.config.Log, Version: a.config.version(), Mode: a.Mode,
		Services: a.config.ServiceMetrics, Endpoints: a.config.EndpointMetrics,
	}), a.checks, a.api.Metric())
	if a.balance != nil {
		collectors = append(collectors, a.balance.Collector())
	}
	a.metrics.Registry.MustRegister(collectors...)
	return func() {
		for _, c := range collectors {
			a.metrics.Registry.Unregister(c)
		}
	}
}

// reportUnsupported says what the mode in force doesn't do; authors of Services are told
// what concerns them after the next sync.
func (a *Agent) reportUnsupported() {
	a.reportedMode = a.Mode()
	a.events.reported = nil
	for _, lack := range a.planes.unsupported() {
		a.config.Log.Debug("not supported by this mode", "feature", lack.String(), "reason", lack.Why)
		// That of IPv6 is the kernel's, in kube-proxy's modes too, whose default asks for it.
		if lack.Feature == kernel.LocalhostNodePort && lack.Value != "IPv6" && a.configured.Load().Compile.LocalhostNodePorts {
			a.config.Log.Warn("flag ignored: this mode lacks what it asks for", "flag", "--localhost-nodeports", "feature", lack.String(), "reason", lack.Why)
		}
		if lack.Feature == kernel.DirectReturn && a.configured.Load().Compile.DirectReturn {
			a.config.Log.Warn("flag ignored: this mode lacks what it asks for", "flag", "--direct-return", "feature", lack.String(), "reason", lack.Why)
		}
		if lack.Feature == kernel.NodeSockets { // nobody's wish, but almost surely a mistake
			a.config.Log.Warn("not supported by this mode", "feature", lack.String(), "reason", lack.Why)
		}
	}
}

// unsupportedOfServices are what the mode in force lacks of what Services ask for
// themselves: not what a flag asks for all of them.
func (a *Agent) unsupportedOfServices() []kernel.Unsupported {
	direct := a.configured.Load().Compile.DirectReturn
	return slices.DeleteFunc(slices.Clone(a.planes.unsupported()), func(l kernel.Unsupported) bool {
		return direct && l.Feature == kernel.DirectReturn
	})
}

// unchanged takes in that the changes from before a time altered nothing in the
// table, which is in force.
func (a *Agent) unchanged(table *model.Table, before time.Time) {
	a.health.unchanged(before)
	a.metrics.Unchanged(table)
}

// syncEnded takes in how a sync of the loop ended.
func (a *Agent) syncEnded(r syncOutcome) {
	a.health.syncEnded(r)
	a.metrics.SyncEnded(metrics.Sync{Table: r.Table, Took: r.Took, Verified: r.Verified, Err: r.Err}, a.planes.kind().Failures)
	if r.Err != nil {
		return
	}
	if r.Drifted || r.Result.Repaired {
		a.repairs.done("the Services of " + a.Mode() + " mode")
	}
	a.reportLeftOut(r.Table, r.Result.LeftOut)
	a.inForce.Store(r.Table)
	a.balance.Applied(r.Table, r.Result.LeftOut)
	a.names.Applied(r.Table)
	if a.reportedMode != a.Mode() {
		a.reportUnsupported()
		signal(a.unregistered) // the Node says which mode it is
	}
	a.events.unsupported(r.Table, a.unsupportedOfServices())
	a.answerHealthChecks(r.Table.Settings)
	first := false
	a.started.Do(func() {
		first = true
		go a.releaseStartupMemory()
		a.sayInForce(r.Table)
	})
	if r.Verified != kernel.VerifyNothing && !first {
		a.releaseComparisonMemory()
	}
}
