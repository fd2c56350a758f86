// Package agent is the loop of one node: it watches the API, has the compiler
// say what traffic goes where, and keeps the kernel at that.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce/speaker"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/endpoint/checker"
	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/tuning"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/lastknown"
	"github.com/fairway-net/fairway/model"
)

// Config is what an agent is started with.
type Config struct {
	API      *rest.Config
	NodeName string // of the Node object of this machine
	Mode     string // a data plane's name, or AutoMode
	Compile  compile.Config
	Plane    kernel.Options
	// VerifyPeriod is how often the kernel is compared with the table unasked;
	// a change that waits for longer than twice this makes the agent unwell.
	VerifyPeriod time.Duration
	// MinPeriod is from one sync's beginning to that of the next for changes
	// that come later; 0 is no pause.
	MinPeriod time.Duration
	// HealthzAddress and MetricsAddress are where HTTP is served, as host:port;
	// "" serves none. With kube-proxy: 0.0.0.0:10256 and 127.0.0.1:10249.
	HealthzAddress, MetricsAddress string
	// RetryBind has the agent go on, and try again, where such an address can't
	// be opened; otherwise it is an error.
	RetryBind bool
	// Profiling serves pprof at MetricsAddress, and Shown, by names, is what
	// /configz there shows.
	Profiling bool
	Shown     map[string]any
	ZPages    ZPages
	// PrimaryAddress, if valid, is the node's in the place of the first of its
	// family in the Node object.
	PrimaryAddress netip.Addr
	// Conntrack and OOMScoreAdj are set at start; zero values leave them.
	Conntrack   tuning.Conntrack
	OOMScoreAdj *int
	// ServiceMetrics is of how many Services /metrics shows the traffic; 0 of none.
	ServiceMetrics int
	// EndpointMetrics is of how many endpoints it does; 0 of none.
	EndpointMetrics int
	// Updates, if not nil, are configurations to go on with, one after the other.
	Updates <-chan Update
	// Register makes the Node object of this machine: where there is no kubelet.
	Register bool
	// Forward has the kernel forward packets between interfaces.
	Forward bool
	// Publish says what this machine publishes; without a folder it is nothing.
	Publish Publish
	// TuneGC says that the process is this agent's alone, so that it may decide how
	// much memory is left to garbage.
	TuneGC bool
	// Announce announces load balancer addresses to other machines; nil doesn't.
	Announce *speaker.Options
	// DNS serves the cluster's names on this node; nil doesn't.
	DNS *DNS
	// KnownDir is where what the API said is saved for a start at which no server
	// answers; without one, the planes' state directory, if that isn't the default.
	KnownDir string
	// Socket is where commands of diagnosis ask this agent; "" is nowhere.
	Socket string
	// Started, if not nil, is called once, when the kernel first is as it should
	// be.
	Started func(Started)
	Log     *slog.Logger
}

// lasting is what goes on when another agent takes one's place in the process.
type lasting struct {
	planes  *switcher
	metrics *metrics
	health  *health
	service *serviceHealth
	ports   *ports
	// startIsOver ends what memory is given to starting beyond the usual.
	startIsOver func()
}

// Agent is a running agent.
type Agent struct {
	lasting
	config       Config
	client       kubernetes.Interface
	state        *state
	events       *events
	names        *names
	checks       *checker.Checker
	publish      *publish.Publisher
	reportedMode string         // whose unsupported features have been logged
	leftOut      map[fault]bool // by the last sync, as has been reported
	balance      *speaker.Speaker
	began        time.Time
	started      sync.Once
	listed       sync.Once
	api          *apiAway

	toldLeftOut atomic.Pointer[[]agentlink.LeftOut]
	known       *lastknown.Store // nil if nothing is kept for the next start

	unregistered chan struct{} // has room for one: the Node was deleted, or shall say something else

	configured atomic.Pointer[Config]      // the configuration in force; config is that of the start
	inForce    atomic.Pointer[model.Table] // nil before the first sync that succeeded
	group      *errgroup.Group             // of what ends with the agent
}

// Run keeps this node in step with the API until ctx is done, and leaves the
// kernel as it is then. An error says why this machine or this configuration
// can't; an API that doesn't answer is none.
func Run(ctx context.Context, config Config) error {
	return run(ctx, config, dataplane.Kinds())
}

// run is Run with these planes. Where a configuration changes that can't change
// in a running agent, another one takes its place; plane, ports and metrics go on.
func run(ctx context.Context, config Config, kinds []dataplane.Kind) error {
	metrics := newMetrics()
	options := config.Plane
	options.Swept = metrics.swept
	planes, err := newSwitcher(kinds, config.Mode, options, config.Log)
	if err != nil {
		return err
	}
	health := newHealth(2 * config.VerifyPeriod)
	l := lasting{
		planes: planes, metrics: metrics, health: health, ports: newPorts(),
		service:     newServiceHealth(func() bool { _, eligible, _ := health.state(); return eligible }, config.Log),
		startIsOver: allowStartupGarbage(config),
	}
	defer l.service.close()
	return errors.Join(l.runAgents(ctx, config), l.ports.keep())
}

func (l lasting) runAgents(ctx context.Context, config Config) error {
	var announcing speaker.Keeper
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

func newAgent(config Config, l lasting) (*Agent, error) {
	if config.VerifyPeriod <= 0 {
		return nil, fmt.Errorf("sync period %s: must be greater than 0", config.VerifyPeriod)
	}
	api := &apiAway{log: config.Log}
	client, err := kube.Client(kube.Reach(config.API, api.observe))
	if err != nil {
		return nil, err
	}
	l.health.setPatience(2 * config.VerifyPeriod)
	a := &Agent{
		lasting: l, config: config, client: client, api: api, began: time.Now(), unregistered: make(chan struct{}, 1),
		events: newEvents(client, config.NodeName, config.Log),
	}
	a.configured.Store(&config)
	a.state = newState(config.Compile, config.NodeName, func() {
		a.health.changed()
		a.metrics.changed()
	})
	a.state.changes, a.state.primary = l.metrics.changes, config.PrimaryAddress
	a.checks, a.publish = a.newChecks(), a.newPublisher()
	if a.names, err = newNames(a); err != nil {
		return nil, err
	}
	return a, nil
}

// announce says what the speaker of this agent is to be; nil is none.
func (a *Agent) announce() *speaker.Config {
	if a.config.Announce == nil {
		return nil
	}
	return &speaker.Config{
		Options: *a.config.Announce, NodeName: a.config.NodeName, API: a.config.API, Client: a.client, Events: a.events, Log: a.config.Log,
	}
}

func (a *Agent) run(ctx context.Context) error {
	ctx, cancel := a.drainFirst(ctx)
	defer cancel()
	defer a.api.close()
	group, ctx := errgroup.WithContext(ctx)
	a.group = group
	report := a.events.ReportNode
	a.planes.report.Store(&report)
	reportHealthPort := func(service, message string) {
		a.events.report(notice{service: serviceOf(service), reason: reasonHealthPort, message: message, local: true})
	}
	a.service.report.Store(&reportHealthPort)
	group.Go(func() error { a.planes.prepare(ctx); return nil })
	defer a.registerCollectors()()
	if err := a.serve(ctx, group); err != nil {
		cancel()
		return errors.Join(err, group.Wait())
	}
	closeKnown, err := a.keepKnown(ctx, group)
	if err != nil {
		a.config.Log.Warn("what is known is not kept for the next start", "error", err)
	}
	a.reportUnsupported()
	a.tune(a.config)
	a.forwardPackets()
	a.switchPlane(ctx, a.config)
	a.releaseInitMemory()
	a.config.Log.Info("agent started", "node", a.config.NodeName, "mode", a.Mode(), "api", a.config.API.Host)
	group.Go(func() error { return watchAddresses(ctx, a.config.Log, a.addressesChanged(ctx, group)) })
	group.Go(func() error { a.reportIncomplete(ctx); return nil })
	group.Go(func() error { a.watchServices(ctx); return nil })
	group.Go(func() error { a.watchSlices(ctx); return nil })
	group.Go(func() error { a.watchNode(ctx); return nil })
	group.Go(func() error { a.watchServiceCIDRs(ctx); return nil })
	group.Go(func() error { return a.events.run(ctx) })
	if a.config.Socket != "" {
		group.Go(func() error { a.serveLink(ctx); return nil })
	}
	group.Go(func() error { return a.checks.Run(ctx) })
	group.Go(func() error { return a.publish.Run(ctx) })
	group.Go(func() error { return a.follow(ctx) })
	group.Go(func() error {
		l := &loop{
			plane: a.planes, table: a.table, wake: a.state.wake, drift: a.planes.drift,
			renew: a.planes.renew, removeLeftovers: a.planes.removeLeftovers,
			verify: func() time.Duration { return a.configured.Load().VerifyPeriod },
			pause:  func() time.Duration { return a.configured.Load().MinPeriod }, report: a.syncEnded, unchanged: a.unchanged, log: a.config.Log,
		}
		if err := l.run(ctx); err != nil {
			return fmt.Errorf("%s mode: %w", a.Mode(), err)
		}
		return nil
	})
	group.Go(func() error { return a.names.run(ctx, group) })
	err = group.Wait()
	return errors.Join(err, closeKnown(), a.names.close())
}

// Mode names the data plane in force.
func (a *Agent) Mode() string { return a.planes.current().mode }

// Switch puts another data plane, or the same with other options, in the place
// of the one in force, without losing a connection, and returns when that is
// done. An error says why it isn't: then the old one stays in force. If ctx ends
// before, so does the attempt.
func (a *Agent) Switch(ctx context.Context, mode string, options kernel.Options) error {
	return a.planes.to(ctx, mode, options)
}

// registerCollectors has /metrics ask this agent, until what it returns is called.
func (a *Agent) registerCollectors() (unregister func()) {
	collectors := []prometheus.Collector{
		newLocalEndpoints(a.inForce.Load), newPlaneMetrics(a.planes.reader, a.config.Log),
		a.checks, a.api.metric(), newTableMetrics(a.inForce.Load), newBuildMetrics(a.config.version(), a.Mode),
	}
	if a.balance != nil {
		collectors = append(collectors, a.balance.Collector())
	}
	if a.config.ServiceMetrics > 0 {
		collectors = append(collectors, newServiceMetrics(a.config.ServiceMetrics, a.inForce.Load, a.planes.reader, a.config.Log))
	}
	if a.config.EndpointMetrics > 0 {
		collectors = append(collectors, newEndpointMetrics(a.config.EndpointMetrics, a.inForce.Load, a.planes.reader, a.config.Log))
	}
	a.metrics.registry.MustRegister(collectors...)
	return func() {
		for _, c := range collectors {
			a.metrics.registry.Unregister(c)
		}
	}
}

// reportUnsupported says what the mode in force doesn't do; authors of Services are told
// what concerns them after the next sync.
func (a *Agent) reportUnsupported() {
	a.reportedMode = a.Mode()
	a.events.reported = nil
	for _, lack := range a.planes.unsupported() {
		a.config.Log.Debug("this mode lacks", "what", lack.String(), "because", lack.Why)
		if lack.Feature == kernel.LocalhostNodePort && a.configured.Load().Compile.LocalhostNodePorts {
			a.config.Log.Warn("not done as asked", "flag", "--localhost-nodeports", "what", lack.String(), "because", lack.Why)
		}
		if lack.Feature == kernel.DirectReturn && a.configured.Load().Compile.DirectReturn {
			a.config.Log.Warn("not done as asked", "flag", "--direct-return", "what", lack.String(), "because", lack.Why)
		}
		if lack.Feature == kernel.NodeSockets { // nobody's wish, but almost surely a mistake
			a.config.Log.Warn("this mode lacks", "what", lack.String(), "because", lack.Why)
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
	a.metrics.unchanged(table)
}

// syncEnded takes in how a sync of the loop ended.
func (a *Agent) syncEnded(r syncOutcome) {
	a.health.syncEnded(r)
	a.metrics.syncEnded(r, a.planes.kind().Failures)
	if r.Err != nil {
		return
	}
	a.reportLeftOut(r.Table, r.Result.LeftOut)
	a.inForce.Store(r.Table)
	a.balance.Applied(r.Table, r.Result.LeftOut)
	a.names.applied(r.Table)
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

// answerHealthChecks opens the health-check ports of Services, at the addresses of
// node ports: all there are, unless some were selected.
func (a *Agent) answerHealthChecks(s *model.Settings) {
	if checks, changed := a.state.healthChecks(); changed {
		a.service.want(checks)
	}
	var addrs []netip.Addr
	if a.configured.Load().Compile.NodePorts.Some() {
		addrs = append([]netip.Addr{}, s.NodePortAddrs...)
	}
	a.service.at(addrs)
	a.service.open()
}

// signal wakes the reader of a channel with room for one, and never waits.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
