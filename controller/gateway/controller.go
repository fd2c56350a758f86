// Package gateway writes what belongs to Gateways and routes: their statuses,
// the Services by which traffic arrives at the engines, and Events. What is
// right is settled in ingress/compile.
//
//	controller.go  when to look, and in which order things are written
//	engines.go     the nodes that have an engine
//	service.go     a Gateway's Service and its ports
//	slices.go      endpoints of that Service: engines, or Services' own for streams
//	status.go      statuses of all kinds
//	acme.go        certificates that Gateways and Ingresses ask for
//	classes.go     the GatewayClass and IngressClass that come with Fairway
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/ingress/acme"
	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/watch"
)

// Name is the component in Events.
const Name = "fairway-gateway"

const (
	merge   = 20 * time.Millisecond // changes that come together are looked at together
	retry   = 200 * time.Millisecond
	lookAt  = 10 * time.Second // Leases end without a word
	writers = 8

	// Compiling goes through all routes, and while these change all the time it would
	// have a processor for itself, which engines and the API server need. So changes
	// wait until calm times as long has passed as it took last, or longestCalm.
	calm        = 4
	longestCalm = time.Second
)

// Options say what the controller makes; the zero value is good.
type Options struct {
	// Classes makes the GatewayClass and the IngressClass "fairway".
	Classes bool
	// NodeAddresses has Gateways answer at the addresses of the nodes that have
	// an engine, instead of addresses of a load balancer.
	NodeAddresses bool
	// Namespace is where engines have their Leases; kube-system if "".
	Namespace string
	// ACME says where certificates come from that Gateways and Ingresses ask for;
	// without a Directory, nowhere. What the controller knows better is left out.
	ACME acme.Options
}

// Controller writes what belongs to Gateways.
type Controller struct {
	options  Options
	watch    *watch.Watch
	recorder record.EventRecorder
	log      *slog.Logger

	certificates *ingress.Certificates
	acme         *acme.Issuer // nil without a directory
	told         map[ingress.Problem]bool
	ports        *ports
	wanted       []ingress.Wanted // certificates

	objects  *ingress.Objects
	out      *ingress.Output // of the last time; nil if all has to be compiled
	compiles int             // so far, for tests
	live     []engine        // as this sync sees them
	took     time.Duration   // compiling, or listing what there is, the last time
	ended    time.Time       // the last sync

	seen   map[string]sighting // by name of the Lease
	looked time.Time           // at Leases, the last time

	mu      sync.Mutex
	engines []engine
}

// New returns the controller; config leads to the API.
func New(config *rest.Config, recorder record.EventRecorder, options Options, log *slog.Logger) (*Controller, error) {
	w, err := watch.New(config, log)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		options: options, watch: w, recorder: recorder, log: log,
		certificates: ingress.NewCertificates(), told: map[ingress.Problem]bool{},
	}
	c.acme = c.newIssuer()
	return c, nil
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	synced := make(chan struct{})
	go c.watch.Run(ctx, func() { close(synced) })
	select {
	case <-ctx.Done():
		return
	case <-synced:
	}
	c.watchEngines(ctx)
	if c.acme != nil {
		go c.acme.Run(ctx)
	}
	made := !c.options.Classes
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.watch.Changed():
			time.Sleep(c.pause(time.Now()))
		case <-timer.C:
		}
		var err error
		if !made {
			err = c.makeClasses(ctx)
			made = err == nil
		}
		wait := lookAt
		if err = errors.Join(err, c.sync(ctx)); err != nil && ctx.Err() == nil {
			failures++
			wait = min(retry<<min(failures, 6), lookAt)
			if failures > 3 { // conflicts and caches that lag behind end by themselves
				c.log.Warn("the Gateways of the cluster could not be updated; trying again", "error", err)
			}
		} else {
			failures = 0
		}
		c.ended = time.Now()
		timer.Reset(wait)
	}
}

// pause is how long changes that have come now gather: a moment, unless there was a sync
// just before.
func (c *Controller) pause(now time.Time) time.Duration {
	return max(merge, min(calm*c.took, longestCalm)-now.Sub(c.ended))
}

// sync brings what is written up to date: by compiling, if what has changed leads
// to anything that was compiled.
func (c *Controller) sync(ctx context.Context) error {
	changes := c.watch.Take()
	c.live = c.liveEngines()
	began := time.Now()
	if c.out == nil || c.leadsSomewhere(&changes) {
		c.out = c.compile(ctx)
		c.took = time.Since(began)
		c.want(c.out)
		c.reportProblems(c.out.Problems)
	} else if !changes.Statuses && !c.movesEndpoints(&changes) && len(changes.Moved)+len(changes.Services) > 0 {
		return nil
	} else {
		c.objects = c.watch.Objects()
		c.took = time.Since(began)
	}
	c.ports = c.takenPorts()
	err := errors.Join(c.writeServices(ctx, c.out), c.writeStatuses(ctx, c.out), c.holdClasses(ctx))
	if err != nil {
		c.out = nil // what the next attempt finds may be other
	}
	return err
}

// leadsSomewhere reports whether something has changed of which a status, a Service
// or an Event may depend. Most of what happens in a cluster hasn't: endpoints move,
// and Services change to which no route leads.
func (c *Controller) leadsSomewhere(changes *watch.Changes) bool {
	if changes.Everything || len(changes.HTTPRoutes)+len(changes.GRPCRoutes)+len(changes.Ingresses)+len(changes.Secrets)+len(changes.ConfigMaps) > 0 {
		return true
	}
	for name, s := range changes.Services {
		if c.out.Concerns(name, s) {
			return true
		}
	}
	return false
}

// movesEndpoints reports whether endpoints have changed that Services of Gateways have.
func (c *Controller) movesEndpoints(changes *watch.Changes) bool {
	for name := range changes.Moved {
		if c.out.NeedsEndpoints(name) {
			return true
		}
	}
	return false
}

// referTimeout is how long an API that doesn't answer holds up statuses that need
// Secrets which are not known yet.
const referTimeout = 10 * time.Second

// compile compiles everything, once what it refers to has been read.
func (c *Controller) compile(ctx context.Context) *ingress.Output {
	ctx, cancel := context.WithTimeout(ctx, referTimeout)
	defer cancel()
	for {
		c.compiles++
		c.objects = c.watch.Objects()
		out := ingress.Compile(c.objects, ingress.Options{Certificates: c.certificates, Lacks: lacks(c.live)})
		if !c.watch.Refer(ctx, out.Secrets, out.ConfigMaps) {
			return out
		}
	}
}

// reportProblems writes an Event for each problem that is new.
func (c *Controller) reportProblems(problems []ingress.Problem) {
	for _, p := range problems {
		if !c.told[p] {
			c.recorder.Event(&corev1.ObjectReference{Kind: p.Kind, Namespace: p.Object.Namespace, Name: p.Object.Name, APIVersion: apiVersion(p.Kind), UID: c.uid(p)},
				corev1.EventTypeWarning, p.Reason, p.Message)
		}
	}
	clear(c.told)
	for _, p := range problems {
		c.told[p] = true
	}
}

func apiVersion(kind string) string {
	switch kind {
	case "Ingress":
		return "networking.k8s.io/v1"
	case "Service", "ConfigMap":
		return "v1"
	}
	return "gateway.networking.k8s.io/v1"
}

func (c *Controller) uid(p ingress.Problem) types.UID {
	if s := c.objects.Services[p.Object]; p.Kind == "Service" && s != nil {
		return s.UID
	}
	for _, i := range c.objects.Ingresses {
		if p.Kind == "Ingress" && i.Namespace == p.Object.Namespace && i.Name == p.Object.Name {
			return i.UID
		}
	}
	return ""
}

// each runs f for all, some at a time, and joins the errors. What has gone
// meanwhile is no error.
func each[K comparable, V any](ctx context.Context, all map[K]V, f func(context.Context, K, V) error) error {
	var g errgroup.Group
	g.SetLimit(writers)
	var mu sync.Mutex
	var errs []error
	for k, v := range all {
		g.Go(func() error {
			if err := f(ctx, k, v); err != nil && !apierrors.IsNotFound(err) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%v: %w", k, err))
			}
			return nil
		})
	}
	_ = g.Wait() // errs has them all
	slices.SortFunc(errs, func(a, b error) int { return len(a.Error()) - len(b.Error()) })
	return errors.Join(errs[:min(len(errs), 3)]...)
}
