package check

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/queue"
	"github.com/fairway-net/fairway/kube"
)

// Config is what a Checker is made of.
type Config struct {
	Client kubernetes.Interface
	Node   string // the name of this machine's Node
	// Addresses lists the addresses of this machine's interfaces.
	Addresses func() ([]netip.Addr, error)
	// Tell tells the author of a Service what is wrong with it; once each.
	Tell func(service types.NamespacedName, message string)
	Log  *slog.Logger
}

// Checker is the part of an agent that checks endpoints. Its methods may be
// called from several goroutines.
type Checker struct {
	config Config
	checks *Scheduler[Endpoint]
	dirty  *queue.Queue[types.NamespacedName] // Services to plan and report anew
	asked  chan struct{}                      // closed when the first Service asks for checks
	ask    sync.Once

	mu      sync.Mutex
	input   input
	planned map[types.NamespacedName]map[netip.AddrPort]finding
	told    map[types.NamespacedName]map[string]bool
}

// finding is the latest verdict of an endpoint that this node checks.
type finding struct {
	target  Target
	verdict Verdict
}

// reportAfter is how long a verdict waits for others of the same Service.
const reportAfter = 50 * time.Millisecond

// NewChecker returns a checker that knows nothing yet.
func NewChecker(config Config) *Checker {
	c := &Checker{
		config: config, asked: make(chan struct{}), input: newInput(),
		planned: map[types.NamespacedName]map[netip.AddrPort]finding{},
		told:    map[types.NamespacedName]map[string]bool{},
	}
	c.checks = NewScheduler(Probe, c.found)
	c.dirty = queue.New(config.Log, c.sync)
	return c
}

// Run checks and reports until ctx is done.
func (c *Checker) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.asked:
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { c.checks.Run(ctx); return nil })
	group.Go(func() error { c.watchNodes(ctx); return nil })
	group.Go(func() error { c.watchReports(ctx); return nil })
	const workers = 4
	group.Go(func() error { c.dirty.Run(ctx, workers); return nil })
	return group.Wait()
}

// SetService takes in a Service that is new or has changed.
func (c *Checker) SetService(s *corev1.Service) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	c.update(func(i *input) []types.NamespacedName { return i.setService(key, s) })
	if Asks(s.Annotations) {
		c.ask.Do(func() { close(c.asked) })
	}
}

// DeleteService takes in that a Service is gone.
func (c *Checker) DeleteService(key types.NamespacedName) {
	c.update(func(i *input) []types.NamespacedName { return i.deleteService(key) })
}

// SetSlice takes in an EndpointSlice that is new or has changed.
func (c *Checker) SetSlice(s *discoveryv1.EndpointSlice) {
	c.update(func(i *input) []types.NamespacedName { return i.setSlice(s) })
}

// DeleteSlice takes in that an EndpointSlice is gone.
func (c *Checker) DeleteSlice(key types.NamespacedName) {
	c.update(func(i *input) []types.NamespacedName { return i.deleteSlice(key) })
}

// Synced takes in that all Services, or all EndpointSlices, are known. Nothing
// is done before both are.
func (c *Checker) Synced(resource string) {
	c.update(func(i *input) []types.NamespacedName { return i.complete(resource) })
}

func (c *Checker) watchNodes(ctx context.Context) {
	source := kube.Source{Client: c.config.Client.CoreV1().RESTClient(), Resource: partNodes}
	kube.Watch(ctx, source, kube.Sink[*corev1.Node]{
		Set: func(n *corev1.Node) {
			c.update(func(i *input) []types.NamespacedName { return i.setNode(NodeOf(n)) })
		},
		Delete: func(key types.NamespacedName) {
			c.update(func(i *input) []types.NamespacedName { return i.deleteNode(key.Name) })
		},
		Synced: func() { c.Synced(partNodes) },
	})
}

// watchReports follows this node's own reports: those of an agent before this
// one, and what others do to them.
func (c *Checker) watchReports(ctx context.Context) {
	source := kube.Source{
		Client: c.config.Client.DiscoveryV1().RESTClient(), Resource: "endpointslices",
		Labels: labels.SelectorFromSet(labels.Set{NodeLabel: c.config.Node, discoveryv1.LabelManagedBy: ReportManager}),
	}
	kube.Watch(ctx, source, kube.Sink[*discoveryv1.EndpointSlice]{
		Set: func(s *discoveryv1.EndpointSlice) {
			c.update(func(i *input) []types.NamespacedName { return i.setReport(s) })
		},
		Delete: func(key types.NamespacedName) {
			c.update(func(i *input) []types.NamespacedName { return i.deleteReport(key) })
		},
		Synced: func() { c.Synced(partReports) },
	})
}

// update changes the input and has the Services that it concerns looked at.
func (c *Checker) update(change func(*input) []types.NamespacedName) {
	c.mu.Lock()
	concerned := change(&c.input)
	complete := len(c.input.missing) == 0
	c.mu.Unlock()
	if !complete {
		return // the last part to come concerns all
	}
	for _, service := range concerned {
		c.dirty.Add(service)
	}
}

// found takes in a verdict.
func (c *Checker) found(t Endpoint, v Verdict) {
	c.mu.Lock()
	f, planned := c.planned[t.Service][t.Addr]
	if planned {
		f.verdict = v
		c.planned[t.Service][t.Addr] = f
	}
	c.mu.Unlock()
	if planned {
		c.dirty.AddAfter(t.Service, reportAfter)
	}
}

// sync brings the checks of a Service, and the reports about it, up to date.
func (c *Checker) sync(ctx context.Context, service types.NamespacedName) error {
	findings, problems := c.plan(service)
	c.reportProblems(service, problems)
	return c.report(ctx, service, findings)
}

// reportProblems reports problems that are new.
func (c *Checker) reportProblems(service types.NamespacedName, problems []error) {
	now := map[string]bool{}
	for _, p := range problems {
		now[p.Error()] = true
	}
	c.mu.Lock()
	before := c.told[service]
	if c.told[service] = now; len(now) == 0 {
		delete(c.told, service)
	}
	c.mu.Unlock()
	for message := range now {
		if !before[message] {
			c.config.Tell(service, message)
		}
	}
}
