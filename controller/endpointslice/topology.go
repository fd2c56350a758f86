package endpointslice

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// allNodes is the one key of the queue for what depends on all Nodes together.
const allNodes = "nodes"

// nodeChanged asks for a look at the Services that have an endpoint on a Node
// that came, went or moved to another zone: an endpoint carries its zone, and
// none is published for a Pod whose Node is unknown.
func (c *Controller) nodeChanged(old, new *corev1.Node) {
	switch {
	case old == nil:
		c.requeueServicesOn(new.Name)
	case new == nil:
		c.requeueServicesOn(old.Name)
	case zone(old) != zone(new):
		c.requeueServicesOn(new.Name)
	}
	if old == nil || new == nil || capacityChanged(old, new) {
		c.zones.Add(allNodes)
	}
}

func (c *Controller) requeueServicesOn(node string) {
	for _, service := range c.cluster.ServicesOn(node) {
		c.services.Add(service)
	}
}

// syncZones shares out the endpoints of Services with topology-mode Auto among
// the zones anew after their capacities changed (KEP-2433).
func (c *Controller) syncZones(context.Context, string) error {
	if err := c.setNodes(); err != nil {
		return err
	}
	for _, overloaded := range c.topology.GetOverloadedServices() {
		namespace, name, err := cache.SplitMetaNamespaceKey(overloaded)
		if err != nil {
			return fmt.Errorf("parse Service key %q: %w", overloaded, err)
		}
		c.services.Add(types.NamespacedName{Namespace: namespace, Name: name})
	}
	services, err := c.cluster.Services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	for _, service := range services {
		if wantsHints(service) {
			c.services.Add(types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
		}
	}
	return nil
}

func (c *Controller) setNodes() error {
	nodes, err := c.cluster.Nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	c.topology.SetNodes(c.logger, nodes)
	return nil
}

func wantsHints(service *corev1.Service) bool {
	return service.Annotations[corev1.AnnotationTopologyMode] != "" ||
		service.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints] != ""
}

func zone(node *corev1.Node) string { return node.Labels[corev1.LabelTopologyZone] }

// capacityChanged reports whether the Node counts differently in its zone's
// share of the CPUs. Labels matter beside the zone: control-plane Nodes do not count.
func capacityChanged(old, new *corev1.Node) bool {
	return zone(old) != zone(new) ||
		!labels.Equals(old.Labels, new.Labels) ||
		ready(old) != ready(new) ||
		!old.Status.Allocatable.Cpu().Equal(*new.Status.Allocatable.Cpu())
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
