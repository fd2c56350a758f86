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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/controller/endpoints"
	"github.com/fairway-net/fairway/controller/endpointslice"
	"github.com/fairway-net/fairway/controller/garbage"
	"github.com/fairway-net/fairway/controller/mirroring"
	"github.com/fairway-net/fairway/controller/namespace"
)

// Options says how the controllers run; the zero value is good.
type Options struct {
	// Lease, if set, lets only one of several servers run the controllers at
	// a time. Two at once would write every EndpointSlice twice.
	Lease *Lease
	// Disable names controllers that do not run; see Names.
	Disable []string
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
}

// loop is a controller at work: it returns when its context is done.
type loop interface{ Run(context.Context) }

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
		{"namespace-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return namespace.New(e.cluster, e.metadata, log)
		}},
		{"garbage-collector-controller", func(e *environment, log *slog.Logger) (loop, error) {
			return garbage.New(e.typed.Discovery(), e.metadata, log), nil
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
	work := func(ctx context.Context) error { return work(ctx, clients, options.Disable, log) }
	if options.Lease == nil {
		return work(ctx)
	}
	if err := options.Lease.validate(); err != nil {
		return err
	}
	return options.Lease.lead(ctx, clients.typed, work)
}

// work runs the controllers until ctx is done.
func work(ctx context.Context, clients clients, disabled []string, log *slog.Logger) error {
	cache, err := cluster.New(clients.typed, endpointslice.Name, mirroring.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cache.Stop()
	defer cancel()
	e := &environment{clients: clients, cluster: cache, broadcaster: record.NewBroadcaster(record.WithContext(ctx))}
	defer e.broadcaster.Shutdown()
	e.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.typed.CoreV1().Events("")})

	var loops []loop
	for _, c := range controllers() {
		if slices.Contains(disabled, c.name) {
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
