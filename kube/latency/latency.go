// Package latency counts what the API changed and how long it took to be in force here.
package latency

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Changes keeps count of what the API changed: how much of it is not in force
// yet, and how long what is took to get here.
type Changes struct {
	descriptions [4]*prometheus.Desc

	mu        sync.Mutex
	began     time.Time // changes from before are not timed: they waited for this process
	node      []string  // the IP families of the last sync
	endpoints pending
	services  pending
	triggered map[uint64]int64 // by slice, the newest change it told of, in ns since 1970
	waiting   []time.Time      // when changes were made that no sync has taken
	underway  []time.Time      // and those that one is at
	recent    recent
}

// pending is how many Services' objects of a kind changed, in all and since the
// last sync took them.
type pending struct {
	total    uint64
	fresh    map[types.NamespacedName]struct{} // no sync has taken them
	underway map[types.NamespacedName]struct{} // one is at them
}

// maxWaiting bounds how many changes are timed at once: a sample is enough.
const maxWaiting = 4096

// largeSet is how many names a set may have had to be used again.
const largeSet = 1024

var changesSeed = maphash.MakeSeed()

// New begins to count; its metrics begin with a prefix.
func New(prefix string) *Changes {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+"_"+name, help, nil, nil)
	}
	return &Changes{
		descriptions: [4]*prometheus.Desc{
			describe("sync_proxy_rules_endpoint_changes_pending", "Services of which changes of endpoints are not in force yet."),
			describe("sync_proxy_rules_endpoint_changes_total", "Changes of endpoints that the API told of."),
			describe("sync_proxy_rules_service_changes_pending", "Services of which changes are not in force yet."),
			describe("sync_proxy_rules_service_changes_total", "Changes of Services that the API told of."),
		},
		began: time.Now(), node: []string{"IPv4"}, triggered: map[uint64]int64{},
		endpoints: newPending(), services: newPending(),
	}
}

func newPending() pending {
	return pending{fresh: map[types.NamespacedName]struct{}{}, underway: map[types.NamespacedName]struct{}{}}
}

func (p *pending) add(name types.NamespacedName) {
	p.total++
	p.fresh[name] = struct{}{}
}

func (p *pending) taken() {
	if len(p.underway) == 0 {
		p.underway, p.fresh = p.fresh, p.underway
		return
	}
	for name := range p.fresh {
		p.underway[name] = struct{}{}
	}
	p.fresh = emptied(p.fresh)
}

// inForce notes that what a sync was at is done.
func (p *pending) inForce() { p.underway = emptied(p.underway) }

// emptied is an empty set: the same, unless it has grown large, as at the start,
// when all there is has changed. A set never gives up room by itself.
func emptied(names map[types.NamespacedName]struct{}) map[types.NamespacedName]struct{} {
	if len(names) > largeSet {
		return map[types.NamespacedName]struct{}{}
	}
	clear(names)
	return names
}

func (p *pending) size() int {
	n := len(p.fresh)
	for name := range p.underway {
		if _, again := p.fresh[name]; !again {
			n++
		}
	}
	return n
}

// Families are the IP families of the last sync.
func (c *Changes) Families() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node
}

// Service notes that a Service changed or went.
func (c *Changes) Service(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services.add(name)
	c.recent.heard(name, time.Time{})
}

// Slice notes that a slice changed, and when what it tells of happened
// (annotation endpoints.kubernetes.io/last-change-trigger-time). A slice that
// comes again with the same time tells of nothing new.
func (c *Changes) Slice(s *discoveryv1.EndpointSlice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	service, at := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}, madeAt(s)
	c.endpoints.add(service)
	c.recent.heard(service, at)
	if at.IsZero() {
		return
	}
	id := sliceID(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	// Not "before": who stamps it may have had its clock set back.
	if at.UnixNano() == c.triggered[id] {
		return
	}
	c.triggered[id] = at.UnixNano()
	// When it began by today's clock, which may have been set since.
	began := time.Now().Add(-time.Since(c.began))
	if at.After(began) && len(c.waiting) < maxWaiting {
		c.waiting = append(c.waiting, at)
	}
}

// SliceGone notes that a slice went.
func (c *Changes) SliceGone(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoints.add(name) // of which Service it was isn't known any more
	delete(c.triggered, sliceID(name))
}

func sliceID(name types.NamespacedName) uint64 { return maphash.Comparable(changesSeed, name) }

// Taken notes that a sync begins with what has been told so far.
func (c *Changes) Taken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoints.taken()
	c.services.taken()
	c.recent.taken()
	// If syncs fail over and over, the oldest are timed and no others.
	c.underway = append(c.underway, c.waiting[:min(len(c.waiting), maxWaiting-len(c.underway))]...)
	c.waiting = c.waiting[:0]
}

// SyncEnded notes how a sync ended, and gives how long the changes took that are
// in force now. Clocks of other machines may be ahead: no less than nothing.
func (c *Changes) SyncEnded(succeeded bool, families []string) (delays []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node = families
	if !succeeded {
		return nil
	}
	c.endpoints.inForce()
	c.services.inForce()
	c.recent.inForce()
	for _, at := range c.underway {
		delays = append(delays, max(0, time.Since(at)))
	}
	c.underway = c.underway[:0]
	return delays
}

// Describe is part of prometheus.Collector.
func (c *Changes) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descriptions {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *Changes) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range []*pending{&c.endpoints, &c.services} {
		out <- prometheus.MustNewConstMetric(c.descriptions[2*i], prometheus.GaugeValue, float64(p.size()))
		out <- prometheus.MustNewConstMetric(c.descriptions[2*i+1], prometheus.CounterValue, float64(p.total))
	}
}
