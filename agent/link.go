package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/connections"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/host"
	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// serveLink answers explain, doctor and dump at the socket until ctx is done. An
// agent without it forwards all the same.
func (a *Agent) serveLink(ctx context.Context) {
	if err := agentlink.Serve(ctx, a.config.Socket, link{a}); err != nil {
		a.config.Log.Warn("explain, doctor and dump can't ask this agent", "error", err)
	}
}

// link is what the agent tells at its socket; see agentlink.Agent.
type link struct{ agent *Agent }

// Status is how the agent is.
func (l link) Status() agentlink.Status {
	a := l.agent
	queued, applied := a.health.times()
	s := agentlink.Status{
		Version: a.config.version(), Node: a.config.NodeName, Mode: a.Mode(), API: a.config.API.Host,
		PID: os.Getpid(), Started: a.began, Applied: applied, Waiting: queued, APIAway: a.api.Away().Seconds(),
		Conntrack: conntrackFill(),
		Plane:     agentlink.OptionsOf(a.configured.Load().Plane),
	}
	if table := a.inForce.Load(); table != nil {
		s.Services = metrics.ServicesIn(table)
	}
	a.state.withCompiler(func(*compile.Compiler) { s.Served = slices.Clone(a.state.config.Served) })
	if left := a.toldLeftOut.Load(); left != nil {
		s.LeftOut = *left
	}
	if rules := a.toldAhead.Load(); rules != nil {
		s.Ahead = *rules
	}
	for _, lack := range a.planes.unsupported() {
		s.Lacks = append(s.Lacks, lack.String()+": "+lack.Why)
	}
	s.Drivers = a.drivers()
	return s
}

// drivers are the interfaces whose driver may forward packets.
func (a *Agent) drivers() []kernel.Driver {
	ctx, cancel := context.WithTimeout(context.Background(), metrics.ReadTimeout)
	defer cancel()
	found, err := a.planes.current().plane.Read(ctx, kernel.Query{Drivers: true})
	if err != nil {
		a.config.Log.Warn("what drivers do can't be read", "error", err)
	}
	if found.Drivers == nil {
		return nil
	}
	return found.Drivers.Interfaces
}

// Table is the one in force.
func (l link) Table() *model.Table { return l.agent.inForce.Load() }

// Decide says what the table in force makes of packets, with the compiler's
// reasons for every endpoint.
func (l link) Decide(keys []model.Key, from explain.Source) explain.View {
	a := l.agent
	view := explain.View{Node: a.config.NodeName, Mode: a.Mode()}
	table := a.inForce.Load()
	if table == nil {
		return view
	}
	plane := explain.Plane{Lacks: a.planes.unsupported(), AnswersPass: kernel.AnswersPass}
	a.state.withCompiler(func(c *compile.Compiler) {
		view.Served = explain.ServedAt(keys, a.state.config.Served)
		for _, q := range explain.Questions(table, keys, from, view.Node) {
			view.Decisions = append(view.Decisions, explain.Decide(c, table, plane, q))
		}
	})
	return view
}

// Flows tells of connections by what the mode in use knows.
func (l link) Flows(ctx context.Context, follow bool, to flow.Listener) error {
	kind, err := dataplane.Find(l.agent.Mode())
	if err != nil {
		return err
	}
	return connections.Of(kind, l.agent.configured.Load().Plane)(ctx, follow, to)
}

// Objects compares what the kernel holds with the table in force.
func (l link) Objects(ctx context.Context, service string) (*dump.Report, error) {
	a := l.agent
	table, current := a.inForce.Load(), a.planes.current()
	if table == nil {
		return nil, errors.New("nothing is in force yet")
	}
	kind, err := dataplane.Find(current.mode)
	if err != nil {
		return nil, err
	}
	reading, err := current.plane.Read(ctx, kernel.Query{Objects: true})
	if err != nil {
		return nil, err
	}
	options := a.configured.Load().Plane
	report, err := dump.Of(table, service, func(t *model.Table) ([]kernel.Object, error) { return kind.Render(t, options) }, reading.Objects)
	if err != nil {
		return nil, err
	}
	status := l.Status()
	report.Node, report.Mode, report.Lacks = status.Node, status.Mode, status.Lacks
	return report, nil
}

// Changes are the latest that are in force.
func (l link) Changes() []agentlink.Change {
	list := []agentlink.Change{}
	for _, c := range l.agent.metrics.Changes.Recent() {
		list = append(list, agentlink.Change{Service: c.Service.String(), Made: c.Made, Heard: c.Heard, InForce: c.InForce})
	}
	return list
}

// Traffic is what the data plane has counted of a Service.
func (l link) Traffic(ctx context.Context, service string) (t agentlink.Traffic, err error) {
	table := l.agent.inForce.Load()
	if table == nil {
		return t, errors.New("nothing is in force yet")
	}
	reading, err := l.agent.planes.current().plane.Read(ctx, kernel.Query{Frontends: true})
	if err != nil {
		return t, err
	}
	for _, c := range reading.Frontends {
		if f := table.Lookup(c.Frontend); f == nil || compile.ServiceOf(f.Name).String() != service {
			continue
		}
		t.Connections += c.Connections
		t.Refused += c.Refused
		t.NoEndpoint += c.NoBackend
		t.NotAllowed += c.NotAllowed
		t.In += c.In
		t.Out += c.Out
	}
	return t, nil
}

// conntrackFill is how full the connection table of this network namespace is; nil if
// the kernel doesn't say.
func conntrackFill() *agentlink.Fill {
	var f agentlink.Fill
	for name, into := range map[string]*int{"nf_conntrack_count": &f.Used, "nf_conntrack_max": &f.Most} {
		text, err := os.ReadFile(filepath.Join("/proc/sys/net/netfilter", name))
		if err != nil {
			return nil // no connection is tracked
		}
		if *into, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return nil
		}
	}
	return &f
}

// Host are the facts of this machine.
func (l link) Host(ctx context.Context) *doctor.Host { return host.Read(ctx) }

// Announced is what this node says of load balancer addresses.
func (l link) Announced() announce.Report { return l.agent.balance.Report(l.agent.config.NodeName) }

// Probe sends packets from this machine.
func (l link) Probe(ctx context.Context, r agentlink.ProbeRequest) (agentlink.ProbeAnswer, error) {
	return agentlink.Probed(ctx, probe.Prober{}, r)
}

// Trace follows packets on this machine.
func (l link) Trace(ctx context.Context, r trace.Request, tell func(trace.Line)) error {
	return trace.Run(ctx, r, tell)
}

// keepLeftOut keeps what a sync left out, for questions about it.
func (a *Agent) keepLeftOut(table *model.Table, left []kernel.LeftOut) {
	var list []agentlink.LeftOut
	for _, l := range left {
		list = append(list, agentlink.LeftOut{Name: partName(table, l), What: l.Error()})
	}
	a.toldLeftOut.Store(&list)
}
