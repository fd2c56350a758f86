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
	"github.com/fairway-net/fairway/controller/endpointslice"
	"github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/controller/mirroring"
	"github.com/fairway-net/fairway/controller/nodecert"
	"github.com/fairway-net/fairway/controller/quota"
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
	// MayServeGateways says which machines get the credential of processes of Gateways;
	// none if it is nil.
	MayServeGateways func(node string) bool
	// NodeGrace is how long a machine may be silent; 0 is nodelife.DefaultGrace.
	NodeGrace time.Duration
	// SecretToken makes the tokens that Secrets of type
	// kubernetes.io/service-account-token hold; nil leaves such Secrets alone.
	SecretToken accounttoken.Issuer
	// CountQuota counts what ResourceQuotas limit; nil leaves those alone.
	CountQuota quota.Count
	// RootCA, PEM encoded, is what Pods know the API server by; nil tells none.
	RootCA []byte
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
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
