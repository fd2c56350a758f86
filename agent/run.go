package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/announce/speaker"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/endpoint/healthports"
	"github.com/fairway-net/fairway/internal/httpports"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/nodeaddrs"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/notices"
)

// Run keeps this node in step with the API until ctx is done, and leaves the
// kernel as it is then. An error says why this machine or this configuration
// can't; an API that doesn't answer is none.
func Run(ctx context.Context, config Config) error {
	return run(ctx, config, dataplane.Kinds())
}

// run is Run with these planes. Where a configuration changes that can't change
// in a running agent, another one takes its place; plane, ports and metrics go on.
func run(ctx context.Context, config Config, kinds []dataplane.Kind) error {
	if config.API != nil && config.API.WarningHandler == nil {
		// Not a copy: the agent that takes this one's place knows by it that the API is the same.
		config.API.WarningHandler = kube.NewWarnings(config.Log)
	}
	shown := metrics.New()
	options := config.Plane
	options.Swept, options.SweepLater = shown.Swept, true
	planes, err := newSwitcher(kinds, config.Mode, options, config.Log)
	if err != nil {
		return err
	}
	health := newHealth(2 * config.VerifyPeriod)
	l := sharedState{
		planes: planes, metrics: shown, health: health, ports: httpports.New(),
		service:     healthports.New(func() bool { _, eligible, _ := health.state(); return eligible }, config.Log),
		startIsOver: boundGarbage(config, whileListing),
	}
	defer l.service.Close()
	return errors.Join(l.runAgents(ctx, config), l.ports.Keep())
}

func (l sharedState) runAgents(ctx context.Context, config Config) error {
	announcing := speaker.Keeper{Log: config.Log}
	defer announcing.End()
	for {
		a, err := newAgent(config, l)
		if err != nil {
			return err
		}
		if a.balance, err = announcing.Take(a.announce()); err != nil {
			return err
		}
		err = a.run(ctx)
		var successor *successorError
		if !errors.As(err, &successor) {
			return err
		}
		updates := config.Updates // which go on, whoever listens
		config = successor.config
		config.Updates = updates
	}
}

func newAgent(config Config, l sharedState) (*Agent, error) {
	if config.VerifyPeriod <= 0 {
		return nil, fmt.Errorf("sync period %s: must be greater than 0", config.VerifyPeriod)
	}
	api := &kube.Outage{Log: config.Log}
	client, err := kube.Client(kube.Reach(config.API, api.Observe))
	if err != nil {
		return nil, err
	}
	l.health.setChangeTimeout(2 * config.VerifyPeriod)
	a := &Agent{
		sharedState: l, config: config, client: client, api: api, began: time.Now(), unregistered: make(chan struct{}, 1), machines: newMachines(),
		events: &events{Writer: notices.New(client, config.NodeName, config.Log)},
	}
	a.configured.Store(&config)
	a.repairs = &repairs{log: config.Log, events: a.events}
	a.state = newState(config.Compile, config.NodeName, func() {
		a.health.changed()
		a.metrics.Changed()
	})
	a.state.changes, a.state.primary = l.metrics.Changes, config.PrimaryAddress
	a.checks, a.publish = a.newChecks(), a.newPublisher()
	return a, a.newNames()
}

// announce says what the speaker of this agent is to be; nil is none.
func (a *Agent) announce() *speaker.Config {
	if a.config.Announce == nil {
		return nil
	}
	return &speaker.Config{
		Options: *a.config.Announce, NodeName: a.config.NodeName, StateDir: a.config.Plane.StateDirectory(), API: a.config.API, Client: a.client, Events: a.events, Log: a.config.Log,
		Connections: a.connectionsTo, CarriesOn: a.carriesOn, TakesAddresses: a.planes.takesAddresses, Again: func() { signal(a.state.wake) }, Peers: a.peers(),
	}
}

// carriesOn reports whether the plane in force has stable flows.
func (a *Agent) carriesOn() bool {
	plane := a.planes.current()
	return plane != nil && !slices.ContainsFunc(plane.plane.Unsupported(), func(u kernel.Unsupported) bool { return u.Feature == kernel.StableFlows })
}

// connectionsTo lists the connections that the plane in force has to some addresses.
func (a *Agent) connectionsTo(addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
	ctx, cancel := context.WithTimeout(context.Background(), metrics.ReadTimeout)
	defer cancel()
	plane := a.planes.current()
	if plane == nil {
		return nil, errors.New("no data plane is in force yet")
	}
	found, err := plane.plane.Read(ctx, kernel.Query{Connections: addresses})
	return found.Connections, err
}

func (a *Agent) run(ctx context.Context) error {
	ctx, cancel := a.drainFirst(ctx)
	defer cancel()
	defer a.api.Close()
	group, ctx := errgroup.WithContext(ctx)
	a.group = group
	report := a.events.ReportNode
	a.planes.report.Store(&report)
	reportHealthPort := func(service, message string) {
		a.events.Report(notices.Notice{Service: compile.ServiceOf(service), Reason: healthports.Reason, Message: message, Local: true})
	}
	a.service.Report.Store(&reportHealthPort)
	group.Go(func() error { a.planes.prepare(ctx); return nil })
	defer a.registerCollectors()()
	if err := a.serve(ctx, group); err != nil {
		cancel()
		return errors.Join(err, group.Wait())
	}
	closeKnown, err := a.keepKnown(ctx, group)
	if err != nil {
		a.config.Log.Warn("the last known state can't be saved for the next start", "error", err)
	}
	a.reportUnsupported()
	a.tune(a.config)
	a.forwardPackets()
	a.switchPlane(ctx, a.config)
	a.releaseInitMemory()
	a.peersChanged(a.balance.Gone())
	a.config.Log.Info("agent started", "node", a.config.NodeName, "mode", a.Mode(), "server", a.config.API.Host)
	group.Go(func() error {
		return nodeaddrs.Watch(ctx, a.config.Log, a.addressesChanged(ctx, group), foreignInterfaces()...)
	})
	group.Go(func() error { a.reportIncomplete(ctx); return nil })
	group.Go(func() error { a.watchServices(ctx); return nil })
	group.Go(func() error { a.watchSlices(ctx); return nil })
	group.Go(func() error { a.watchNode(ctx); return nil })
	group.Go(func() error { a.watchServiceCIDRs(ctx); return nil })
	if a.balance != nil {
		group.Go(func() error { a.followMachines(ctx); return nil })
	}
	group.Go(func() error { return a.events.Run(ctx) })
	if a.config.Socket != "" {
		group.Go(func() error { a.serveLink(ctx); return nil })
	}
	if a.config.AgentAddress != "" && a.config.Register {
		group.Go(func() error { a.servePort(ctx); return nil })
	}
	group.Go(func() error { a.watchAhead(ctx); return nil })
	group.Go(func() error { return a.checks.Run(ctx) })
	group.Go(func() error { return a.publish.Run(ctx) })
	group.Go(func() error { return a.follow(ctx) })
	group.Go(func() error {
		l := &loop{
			plane: a.planes, table: a.table, wake: a.state.wake, drift: a.planes.drift,
			renew: a.planes.renew, removeLeftovers: a.removeLeftovers,
			verify: func() time.Duration { return a.configured.Load().VerifyPeriod },
			pause:  func() time.Duration { return a.configured.Load().MinPeriod }, report: a.syncEnded, unchanged: a.unchanged, log: a.config.Log,
		}
		if err := l.run(ctx); err != nil {
			return fmt.Errorf("%s mode: %w", a.Mode(), err)
		}
		return nil
	})
	group.Go(func() error { return a.names.Run(ctx, group) })
	err = group.Wait()
	return errors.Join(err, closeKnown(), a.names.Close())
}
