package publish

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/internal/queue"
)

// Config is what a Publisher is made of.
type Config struct {
	Client kubernetes.Interface
	Node   string // the name of this machine's Node
	Folder string // of the files; "" publishes nothing
	// DrainTime is how long an endpoint that goes still answers.
	DrainTime time.Duration
	// Tell writes an Event about a Service, or about the Node if it has no name.
	Tell func(service types.NamespacedName, kind, reason, message string)
	Log  *slog.Logger
}

// DefaultDrainTime is how long an endpoint that goes still answers.
const DefaultDrainTime = 10 * time.Second

// Publisher is the part of an agent that publishes what this machine runs. Its
// methods may be called from several goroutines.
type Publisher struct {
	config Config
	checks *check.Scheduler[types.NamespacedName] // by slice
	dirty  *queue.Queue[types.NamespacedName]     // Services to look at

	mu       sync.Mutex
	read     bool // the folder, for the first time
	ending   bool
	machine  machine
	entries  []Entry
	files    map[string]string // the problems of files, as told
	told     map[types.NamespacedName]map[string]bool
	tracked  map[types.NamespacedName]*tracked  // by slice
	draining map[types.NamespacedName]time.Time // when slices go
	waiting  map[types.NamespacedName]bool      // Services to look at once the Node is known
}

// New returns a publisher that knows nothing yet.
func New(config Config) *Publisher {
	p := &Publisher{
		config: config, machine: machine{name: config.Node},
		told: map[types.NamespacedName]map[string]bool{}, tracked: map[types.NamespacedName]*tracked{},
		draining: map[types.NamespacedName]time.Time{}, waiting: map[types.NamespacedName]bool{},
	}
	p.checks = check.NewScheduler(check.Probe, p.found)
	p.dirty = queue.New(config.Log, p.sync)
	return p
}

// Run publishes until ctx is done. What is published then stays.
func (p *Publisher) Run(ctx context.Context) error {
	if p.config.Folder == "" {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { follow(ctx, p.config.Folder, p.config.Log, p.readFolder); return nil })
	group.Go(func() error { p.checks.Run(ctx); return nil })
	const workers = 4
	group.Go(func() error { p.dirty.Run(ctx, workers); return nil })
	return group.Wait()
}

// SetService takes in a Service that is new or has changed.
func (p *Publisher) SetService(s *corev1.Service) {
	p.look(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
}

// DeleteService takes in that a Service is gone.
func (p *Publisher) DeleteService(key types.NamespacedName) { p.look(key) }

// SetSlice takes in an EndpointSlice that is new or has changed: others may
// change this machine's.
func (p *Publisher) SetSlice(s *discoveryv1.EndpointSlice) {
	if p.config.Folder == "" || s.Labels[discoveryv1.LabelManagedBy] != Manager || s.Labels[check.NodeLabel] != p.config.Node {
		return
	}
	if key, belongs := check.ServiceOf(s); belongs {
		p.dirty.Add(key)
	}
}

// DeleteSlice takes in that an EndpointSlice is gone.
func (p *Publisher) DeleteSlice(key types.NamespacedName) {
	p.mu.Lock()
	t := p.tracked[key]
	p.mu.Unlock()
	if t != nil {
		p.dirty.Add(t.service)
	}
}

// look has a Service looked at if this machine publishes endpoints of it.
func (p *Publisher) look(key types.NamespacedName) {
	p.mu.Lock()
	ours := slices.ContainsFunc(p.entries, func(e Entry) bool { return e.Service == key })
	p.mu.Unlock()
	if ours {
		p.dirty.Add(key)
	}
}

// SetNode takes in this machine's Node.
func (p *Publisher) SetNode(n *corev1.Node) {
	m := machine{name: p.config.Node, uid: n.UID, zone: n.Labels[corev1.LabelTopologyZone]}
	for _, a := range n.Status.Addresses {
		if parsed, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			m.addresses = append(m.addresses, parsed.Unmap())
		}
	}
	p.mu.Lock()
	changed := m.uid != p.machine.uid || m.zone != p.machine.zone || !slices.Equal(m.addresses, p.machine.addresses)
	p.machine = m
	p.mu.Unlock()
	if changed {
		p.lookAtAll()
	}
}

func (p *Publisher) lookAtAll() {
	p.mu.Lock()
	keys := p.waiting
	p.waiting = map[types.NamespacedName]bool{}
	for _, e := range p.entries {
		keys[e.Service] = true
	}
	for _, t := range p.tracked {
		keys[t.service] = true
	}
	p.mu.Unlock()
	for key := range keys {
		p.dirty.Add(key)
	}
}

// readFolder takes in the files as they are. A file that can't be read leaves
// what it said before.
func (p *Publisher) readFolder() {
	entries, problems, err := ReadFolder(p.config.Folder)
	if err != nil {
		problems = map[string]error{p.config.Folder: err}
	}
	p.mu.Lock()
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return problems[e.Source] != nil && p.hadSource(e.Source) })
	for _, e := range p.entries {
		if err != nil || problems[e.Source] != nil {
			entries = append(entries, e)
		}
	}
	concerned := map[types.NamespacedName]bool{}
	for _, e := range slices.Concat(p.entries, entries) {
		concerned[e.Service] = true
	}
	p.entries = entries
	first := !p.read
	p.read = p.read || err == nil
	before := p.files
	p.files = map[string]string{}
	for file, problem := range problems {
		p.files[file] = problem.Error()
	}
	now := maps.Clone(p.files)
	p.mu.Unlock()
	for file, text := range now {
		if before[file] != text {
			p.config.Log.Warn("a published file is invalid; its endpoint stays as it was", "folder", p.config.Folder, "error", text)
			p.config.Tell(types.NamespacedName{}, corev1.EventTypeWarning, reasonInvalidFile, text)
		}
	}
	if first {
		p.lookForLeftovers(concerned)
	}
	for key := range concerned {
		p.dirty.Add(key)
	}
}

// hadSource reports whether a file has been understood before. The caller holds the lock.
func (p *Publisher) hadSource(source string) bool {
	return slices.ContainsFunc(p.entries, func(e Entry) bool { return e.Source == source })
}

// found takes in a verdict.
func (p *Publisher) found(slice types.NamespacedName, v check.Verdict) {
	p.mu.Lock()
	t := p.tracked[slice]
	if t != nil {
		t.verdict = v
	}
	p.mu.Unlock()
	if t != nil {
		p.dirty.Add(t.service)
	}
}

// sync brings the endpoints of a Service up to date.
func (p *Publisher) sync(ctx context.Context, key types.NamespacedName) error {
	p.mu.Lock()
	m := p.machine
	entries := slices.DeleteFunc(slices.Clone(p.entries), func(e Entry) bool { return e.Service != key })
	ready := p.read && !p.ending
	if ready && m.uid == "" {
		// Addresses are known once the Node is. What the agent before this one
		// published must not be drained until then.
		p.waiting[key] = true
		ready = false
	}
	p.mu.Unlock()
	if !ready {
		return nil
	}
	service, err := p.service(ctx, key)
	if err != nil {
		return err
	}
	have, err := p.own(ctx, key)
	if err != nil {
		return err
	}
	endpoints, problems := m.resolve(entries, service, have)
	problems = append(problems, p.check(key, service, endpoints, have)...)
	p.reportProblems(key, service != nil, problems)
	p.reportHealth(key, endpoints)
	return p.write(ctx, key, &m, service, endpoints, have)
}
