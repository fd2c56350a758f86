// Package compile turns Services, EndpointSlices and what is known of this
// node into a [model.Table]. All meaning is decided here: which addresses a
// Service answers at, for whom and through which of its endpoints. It is pure:
// no clock, no I/O, and the same objects give the same table in whatever order
// they come. docs/reference/semantics.md has the decisions in words.
//
// [Compiler] works incrementally: it keeps compact records instead of API
// objects, and the cost of a change is that of the Services it touches.
package compile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/model"
)

// Compiler holds what a node has been told and the table that follows from it.
// Not for concurrent use. The objects passed in are neither kept nor changed.
type Compiler struct {
	config   Config
	node     Node
	nodeView nodeView // what endpoints are judged by; follows from node
	// nodePortAddrs are the addresses at which node ports answer, sorted.
	nodePortAddrs []netip.Addr
	services      map[types.NamespacedName]*service
	owners        map[types.NamespacedName]*service // of slices
	claims        map[model.Key]*claim
	exempt        map[*service]struct{} // those another proxy serves

	dirty         []*service // in need of compiling, each once
	conflicted    []*service // whose problems may have changed, each once
	settingsDirty bool

	table    *model.Table
	edit     *model.Edit // of table; nil while nothing has changed
	fresh    []Problem
	scratch  scratch
	compiled int // Services compiled so far: what tests hold the cost against

	gone        places // machines that are
	health      map[types.NamespacedName]HealthCheck
	healthMoved map[types.NamespacedName]struct{}
}

// New returns a Compiler that knows of no Services yet.
func New(config Config) *Compiler {
	return &Compiler{
		config:        config,
		nodeView:      Node{}.judged(),
		services:      map[types.NamespacedName]*service{},
		owners:        map[types.NamespacedName]*service{},
		claims:        map[model.Key]*claim{},
		exempt:        map[*service]struct{}{},
		health:        map[types.NamespacedName]HealthCheck{},
		healthMoved:   map[types.NamespacedName]struct{}{},
		settingsDirty: true,
		table:         model.NewTable(),
	}
}

// All compiles a table from scratch.
func All(config Config, node Node, services []*corev1.Service, slices []*discoveryv1.EndpointSlice) *model.Table {
	c := New(config)
	c.SetNode(node)
	for _, s := range services {
		c.SetService(s)
	}
	for _, s := range slices {
		c.SetSlice(s)
	}
	return c.Table()
}

// SetConfig replaces the configuration.
func (c *Compiler) SetConfig(config Config) {
	c.config = config
	c.nodePortAddrs = c.nodePortAddresses()
	c.touchAll()
}

// SetNode tells what is known of this node. Where only its addresses change,
// only the Services that others may claim addresses from are compiled again.
func (c *Compiler) SetNode(node Node) {
	last := c.node
	c.node = node
	c.nodeView = node.judged()
	c.nodePortAddrs = c.nodePortAddresses()
	if last.Name != node.Name || last.Zone != node.Zone || !slices.Equal(last.PodCIDRs, node.PodCIDRs) {
		c.touchAll()
		return
	}
	c.settingsDirty = true
	for _, svc := range c.services {
		if svc.spec != nil && len(svc.spec.externalIPs)+len(svc.spec.loadBalancerIPs) > 0 {
			c.touch(svc, true)
		}
		if len(svc.problems) > 0 { // one may be about an address that is gone
			c.markConflicted(svc)
		}
	}
}

// SetService adds or replaces a Service.
func (c *Compiler) SetService(s *corev1.Service) {
	svc := c.service(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	svc.spec = newSpec(s)
	c.touch(svc, true)
}

// DeleteService removes a Service; its slices are remembered.
func (c *Compiler) DeleteService(namespace, name string) {
	svc := c.services[types.NamespacedName{Namespace: namespace, Name: name}]
	if svc == nil || svc.spec == nil {
		return
	}
	svc.spec = nil
	c.touch(svc, true)
}

// SetSlice adds or replaces an EndpointSlice. Its Service may come later.
func (c *Compiler) SetSlice(s *discoveryv1.EndpointSlice) {
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	if !usableSlice(s) {
		c.DeleteSlice(s.Namespace, s.Name)
		return
	}
	svc := c.service(types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
	if c.owners[name] != svc {
		c.DeleteSlice(s.Namespace, s.Name)
		c.owners[name] = svc
	}
	record := newSlice(s)
	if svc.slice(s.Name).equal(record) {
		return
	}
	svc.setSlice(record)
	c.touch(svc, false)
}

// DeleteSlice removes an EndpointSlice.
func (c *Compiler) DeleteSlice(namespace, name string) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	svc := c.owners[key]
	if svc == nil {
		return
	}
	delete(c.owners, key)
	svc.deleteSlice(name)
	c.touch(svc, false)
}

// OwnerOfSlice returns the Service that an EndpointSlice belongs to; false if the
// slice isn't known.
func (c *Compiler) OwnerOfSlice(namespace, name string) (types.NamespacedName, bool) {
	svc := c.owners[types.NamespacedName{Namespace: namespace, Name: name}]
	if svc == nil {
		return types.NamespacedName{}, false
	}
	return svc.key, true
}

// Table returns the table that follows from everything said so far. While
// nothing changes in it, it is the same table; what a change doesn't alter is
// shared with the one before.
func (c *Compiler) Table() *model.Table {
	for _, svc := range c.dirty {
		c.compile(svc)
	}
	clear(c.dirty)
	c.dirty = c.dirty[:0]
	if c.settingsDirty {
		c.compileSettings()
		c.settingsDirty = false
	}
	c.reportConflicts()
	if c.edit != nil {
		c.table, c.edit = c.edit.Table(), nil
	}
	return c.table
}

// change returns the table in the making.
func (c *Compiler) change() *model.Edit {
	if c.edit == nil {
		c.edit = c.table.Edit()
	}
	return c.edit
}

func (c *Compiler) service(key types.NamespacedName) *service {
	svc := c.services[key]
	if svc == nil {
		svc = &service{key: key}
		c.services[key] = svc
	}
	return svc
}

// touch has a Service compiled with the next table; entrances says whether more
// than its endpoints may have changed.
func (c *Compiler) touch(svc *service, entrances bool) {
	svc.entrancesDirty = svc.entrancesDirty || entrances
	if !svc.dirty {
		svc.dirty = true
		c.dirty = append(c.dirty, svc)
	}
}

func (c *Compiler) touchAll() {
	c.settingsDirty = true
	for _, svc := range c.services {
		c.touch(svc, true)
	}
}

// compile brings what the table says of one Service up to date.
func (c *Compiler) compile(svc *service) {
	c.compiled++
	if svc.entrancesDirty {
		c.compileExempt(svc)
		c.setFrontends(svc, c.frontends(svc))
		c.setPools(svc)
	}
	c.compilePools(svc)
	c.compileHealth(svc)
	c.markConflicted(svc)
	svc.dirty, svc.entrancesDirty = false, false
	if svc.spec == nil && len(svc.slices) == 0 {
		delete(c.services, svc.key)
	}
}
