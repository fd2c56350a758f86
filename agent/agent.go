// Package agent is the loop of one node: it watches the API, has the compiler
// say what traffic goes where, and keeps the kernel at that.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube"
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
	// HealthzAddress and MetricsAddress are where HTTP is served, as host:port;
	// "" serves none. With kube-proxy: 0.0.0.0:10256 and 127.0.0.1:10249.
	HealthzAddress, MetricsAddress string
	// Register makes the Node object of this machine: where there is no kubelet.
	Register bool
	// DNS serves the cluster's names on this node; nil doesn't.
	DNS *DNS
	Log *slog.Logger
}

// Agent is a running agent.
type Agent struct {
	config  Config
	client  kubernetes.Interface
	mode    string
	plane   dataplane.Plane
	state   *state
	health  *health
	service *serviceHealth
	events  *events
	metrics *metrics
	names   *names
	drift   chan struct{}
}

// Run keeps this node in step with the API until ctx is done, and leaves the
// kernel as it is then. An error says why this machine or this configuration
// can't; an API that doesn't answer is none.
func Run(ctx context.Context, config Config) error {
	a, err := newAgent(config)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

func newAgent(config Config) (*Agent, error) {
	if config.VerifyPeriod <= 0 {
		return nil, fmt.Errorf("sync period %s: must be greater than 0", config.VerifyPeriod)
	}
	client, err := kube.Client(config.API)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		config: config, client: client,
		health:  newHealth(2 * config.VerifyPeriod),
		drift:   make(chan struct{}, 1),
		events:  newEvents(client, config.NodeName, config.Log),
		metrics: newMetrics(),
	}
	options := config.Plane
	options.Drift = func() { signal(a.drift) }
	if a.mode, a.plane, err = choose(config.Mode, options, config.Log); err != nil {
		return nil, err
	}
	a.service = newServiceHealth(func() bool { _, eligible, _ := a.health.state(); return eligible }, config.Log)
	a.state = newState(config.Compile, config.NodeName, func() {
		a.health.changed()
		a.metrics.changed()
	})
	if a.names, err = newNames(a); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Agent) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	if err := a.serve(ctx, group); err != nil {
		cancel()
		return errors.Join(err, group.Wait())
	}
	for _, lack := range a.plane.Lacks() {
		a.config.Log.Debug("this mode lacks", "what", describe(lack), "because", lack.Why)
		if lack.Feature == kernel.LocalhostNodePort && a.config.Compile.LocalhostNodePorts {
			a.config.Log.Warn("not done as asked", "flag", "--localhost-nodeports", "what", describe(lack), "because", lack.Why)
		}
	}
	a.config.Log.Info("agent started", "node", a.config.NodeName, "mode", a.mode, "api", a.config.API.Host)
	group.Go(func() error { return watchAddresses(ctx, a.addressesChanged(ctx, group)) })
	group.Go(func() error { a.watchServices(ctx); return nil })
	group.Go(func() error { a.watchSlices(ctx); return nil })
	group.Go(func() error { a.watchNode(ctx); return nil })
	group.Go(func() error { return a.events.run(ctx) })
	group.Go(func() error {
		l := &loop{
			plane: a.plane, table: a.table, wake: a.state.wake, drift: a.drift,
			verify: a.config.VerifyPeriod, report: a.rounded, log: a.config.Log,
		}
		if err := l.run(ctx); err != nil {
			return fmt.Errorf("%s mode: %w", a.mode, err)
		}
		return nil
	})
	group.Go(func() error { return a.names.run(ctx, group) })
	err := group.Wait()
	return errors.Join(err, a.names.close(), a.service.close())
}

// rounded takes in how a round of the loop ended.
func (a *Agent) rounded(r round) {
	a.health.rounded(r)
	a.metrics.rounded(r)
	if r.Err != nil {
		return
	}
	a.names.applied(r.Table)
	a.events.lacks(r.Table, a.plane.Lacks())
	if checks, changed := a.state.healthChecks(); changed {
		a.service.want(checks)
	}
	if err := a.service.open(); err != nil {
		a.config.Log.Warn("health check ports", "error", err)
	}
}

// signal wakes the reader of a channel with room for one, and never waits.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
