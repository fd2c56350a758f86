// Package controller runs the control loops that turn API objects into other
// API objects: EndpointSlices and Endpoints from Services and Pods, and the
// clean-up after namespaces and owners. It talks to any Kubernetes API and
// knows nothing of the server or the data planes.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller/accounttoken"
	"github.com/fairway-net/fairway/controller/addresses"
	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/controller/clusterroles"
	"github.com/fairway-net/fairway/controller/disruption"
	"github.com/fairway-net/fairway/controller/endpoints"
	"github.com/fairway-net/fairway/controller/endpointslice"
	"github.com/fairway-net/fairway/controller/expired"
	"github.com/fairway-net/fairway/controller/garbage"
	"github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/controller/health"
	"github.com/fairway-net/fairway/controller/mirroring"
	"github.com/fairway-net/fairway/controller/namespace"
	"github.com/fairway-net/fairway/controller/nodecert"
	"github.com/fairway-net/fairway/controller/nodelife"
	"github.com/fairway-net/fairway/controller/noendpoints"
	"github.com/fairway-net/fairway/controller/podgc"
	"github.com/fairway-net/fairway/controller/serviceaccount"
	"github.com/fairway-net/fairway/controller/servicecidr"
)

// Options says how the controllers run; the zero value is good.
type Options struct {
	// Lease, if set, lets only one of several servers run the controllers at
	// a time. Two at once would write every EndpointSlice twice.
	Lease *Lease
	// Disable names controllers that do not run; see Names.
	Disable []string
	// Addresses says how Services of type LoadBalancer get their addresses.
	Addresses addresses.Options
	// Gateway says how Gateways and Ingresses get theirs.
	Gateway gateway.Options
	// Signer issues the certificates of machines; nil leaves requests alone.
	Signer nodecert.Signer
	// NodeGrace is how long a machine may be silent; 0 is nodelife.DefaultGrace.
	NodeGrace time.Duration
	// SecretToken makes the tokens that Secrets of type
	// kubernetes.io/service-account-token hold; nil leaves such Secrets alone.
	SecretToken accounttoken.Issue
	// RootCA, PEM encoded, is what Pods know the API server by; nil tells none.
	RootCA []byte
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
}

// loop is a controller at work: it returns when its context is done.
type loop interface{ Run(context.Context) }

// idle is a controller with nothing to do.
type idle struct{}

func (idle) Run(context.Context) {}

// starter is one line of the list of controllers.
type starter struct {
	name string
	new  func(*environment, *slog.Logger) (loop, error)
}

// controllers is the one list of what Run runs, by the names that
// kube-controller-manager's --controllers knows them under.
func controllers() []starter {
	return []starter{
		{"endpointslice-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return endpointslice.New(e.cluster, e.events("endpoint-slice-controller"), log)
		}},
		{"endpoints-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return endpoints.New(e.cluster, log)
		}},
		{"endpointslice-mirroring-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return mirroring.New(e.cluster, log)
		}},
		{"no-endpoints-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return noendpoints.New(e.cluster, e.events(noendpoints.Component), log), nil
		}},
		{"endpoint-health-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return health.New(e.cluster, e.events("endpoint-health-controller"), log)
		}},
		{"namespace-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return namespace.New(e.cluster, e.metadata, log)
		}},
		{"garbage-collector-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return garbage.New(e.typed.Discovery(), e.metadata, log), nil
		}},
		{"certificatesigningrequest-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return nodecert.New(e.cluster, e.options.Signer, log)
		}},
		{"expired-objects-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return expired.New(e.typed, log), nil
		}},
		{"node-lifecycle-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return nodelife.New(e.cluster, e.options.NodeGrace, log)
		}},
		{"pod-garbage-collector-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return podgc.New(e.cluster, log)
		}},
		{"disruption-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return disruption.New(e.typed, log), nil
		}},
		{"clusterrole-aggregation-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return clusterroles.New(e.typed, log), nil
		}},
		{servicecidr.Name, func(e *environment, log *slog.Logger) (loop, error) {
			return servicecidr.New(e.cluster, log)
		}},
		{"serviceaccount-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return serviceaccount.New(e.cluster, e.options.RootCA, log)
		}},
		{accounttoken.Name, func(e *environment, log *slog.Logger) (loop, error) {
			if e.options.SecretToken == nil {
				return idle{}, nil
			}
			return accounttoken.New(e.typed, e.options.SecretToken, e.options.RootCA, log)
		}},
		{"load-balancer-addresses-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return addresses.New(e.cluster, e.metallb, e.events(addresses.Name), e.options.Addresses, log)
		}},
		{"gateway-controller", func(e *environment, log *slog.Logger) (loop, error) {
			if e.config == nil { // the clients are fakes
				return idle{}, nil
			}
			return gateway.New(e.config, e.events(gateway.Name), e.options.Gateway, log)
		}},
	}
}

// Names returns the names of all controllers.
func Names() []string {
	var names []string
	for _, c := range controllers() {
		names = append(names, c.name)
	}
	return names
}

// environment is what controllers are made of.
type environment struct {
	clients
	cluster     *cluster.Cache
	broadcaster record.EventBroadcaster
	options     Options
}

func (e *environment) events(component string) record.EventRecorder {
	return e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

// Run runs the controllers against the API that config leads to, until ctx is
// done. It returns an error only if they could not be started: a call that
// fails later is tried again, with growing delays, for as long as it takes.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	clients, err := newClients(config)
	if err != nil {
		return err
	}
	return run(ctx, clients, options)
}

func run(ctx context.Context, clients clients, options Options) error {
	log := options.Logger
	if log == nil {
		log = slog.Default()
	}
	for _, name := range options.Disable {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("disable controller %q: no such controller, there are %v", name, Names())
		}
	}
	work := func(ctx context.Context) error { return work(ctx, clients, options, log) }
	if options.Lease == nil {
		return work(ctx)
	}
	if err := options.Lease.validate(); err != nil {
		return err
	}
	return options.Lease.Lead(ctx, clients.typed, work)
}

// work runs the controllers until ctx is done.
func work(ctx context.Context, clients clients, options Options, log *slog.Logger) error {
	cache, err := cluster.New(clients.typed, endpointslice.Name, mirroring.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cache.Stop()
	defer cancel()
	e := &environment{
		clients: clients, cluster: cache, broadcaster: record.NewBroadcaster(record.WithContext(ctx)), options: options,
	}
	defer e.broadcaster.Shutdown()
	e.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.typed.CoreV1().Events("")})

	var loops []loop
	for _, c := range controllers() {
		if slices.Contains(options.Disable, c.name) {
			continue
		}
		l, err := c.new(e, log.With("controller", c.name))
		if err != nil {
			return fmt.Errorf("start controller %s: %w", c.name, err)
		}
		loops = append(loops, l)
	}
	if err := cache.Start(ctx); err != nil {
		return nilIfDone(ctx, err)
	}
	var running sync.WaitGroup
	for _, l := range loops {
		running.Go(func() { l.Run(ctx) })
	}
	running.Wait()
	return nil
}

// nilIfDone keeps a shutdown that came early from looking like a failure.
func nilIfDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
