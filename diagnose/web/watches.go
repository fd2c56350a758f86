package web

import (
	"context"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/kube"
)

// watch follows the API until ctx is done.
func (p *Page) watch(ctx context.Context, client kubernetes.Interface) {
	core, discovery, networking := client.CoreV1().RESTClient(), client.DiscoveryV1().RESTClient(), client.NetworkingV1().RESTClient()
	var group sync.WaitGroup
	group.Go(func() { follow(ctx, p, core, "services", p.serviceChanged) })
	group.Go(func() { follow(ctx, p, discovery, "endpointslices", p.sliceChanged) })
	group.Go(func() { follow(ctx, p, core, "nodes", p.nodeChanged) })
	group.Go(func() { follow(ctx, p, core, "pods", p.podChanged) })
	group.Go(func() { follow(ctx, p, networking, "networkpolicies", p.policyChanged) })
	group.Wait()
}

// follow watches one kind. changed is given nil for an object that is gone.
func follow[T any, P interface {
	*T
	kube.Object
}](ctx context.Context, p *Page, client rest.Interface, resource string, changed func(types.NamespacedName, *T)) {
	source := kube.Source{Client: client, Resource: resource, Asked: func(err error) {
		if err != nil && ctx.Err() != nil {
			return
		}
		none := resource == "networkpolicies" && apierrors.IsNotFound(err) // an API that has none
		if none {
			err = nil
		}
		p.store.setPart(resource, func(of *part) { of.err, of.synced = err, of.synced || none })
		p.survey.again() // what waited for this kind
		p.hub.publish(topicState)
	}}
	kube.Watch(ctx, source, kube.Sink[P]{
		Set: func(o P) { changed(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, (*T)(o)) },
		Delete: func(name types.NamespacedName) {
			changed(name, nil)
		},
		Synced: func() {
			p.store.setPart(resource, func(of *part) { of.synced = true })
			p.survey.again(p.store.apiTold(resource)...)
			p.survey.again(p.store.names()...)
			p.hub.publish(topicState)
		},
	})
}

// synced reports whether a kind was read in full once.
func (s *store) synced(resource string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.parts[resource].synced
}

func (p *Page) serviceChanged(name types.NamespacedName, now *corev1.Service) {
	before := p.store.setService(name, now)
	if p.store.synced("services") {
		p.history.service(name, before, now)
	}
	p.survey.again(name)
	p.survey.again(p.store.sharing(before)...)
	p.survey.again(p.store.sharing(now)...)
	p.hub.publish(topicServices)
}

func (p *Page) sliceChanged(name types.NamespacedName, now *discoveryv1.EndpointSlice) {
	before, service := p.store.setSlice(name, now)
	if p.store.synced("endpointslices") {
		p.history.slice(service, before, now)
	}
	p.survey.again(service)
	p.hub.publish(topicServices)
}

func (p *Page) podChanged(name types.NamespacedName, now *corev1.Pod) {
	before := p.store.setPod(name, thinPod(now))
	if p.store.synced("pods") {
		p.survey.again(p.store.selecting(before, now)...)
	}
}

func (p *Page) nodeChanged(name types.NamespacedName, now *corev1.Node) {
	before := p.store.setNode(name.Name, thinNode(now))
	p.hub.publish(topicNodes)
	if p.store.synced("nodes") && (before == nil || now == nil || !sameNode(before, now)) {
		p.survey.again(p.store.names()...)
	}
}

func (p *Page) policyChanged(name types.NamespacedName, now *networkingv1.NetworkPolicy) {
	p.store.setPolicy(name, now)
	if !p.store.synced("networkpolicies") {
		return
	}
	for _, service := range p.store.names() {
		if service.Namespace == name.Namespace {
			p.survey.again(service)
		}
	}
}

// thinNode leaves out what takes much room and nobody reads here.
func thinNode(n *corev1.Node) *corev1.Node {
	if n != nil {
		n.Status.Images = nil
	}
	return n
}

// thinPod does the same.
func thinPod(p *corev1.Pod) *corev1.Pod {
	if p == nil {
		return nil
	}
	p.Spec.Volumes, p.Spec.Tolerations, p.Spec.Affinity = nil, nil, nil
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Env, c.EnvFrom, c.VolumeMounts = nil, nil, nil
	}
	return p
}

// sameNode reports whether two states of a node mean the same for Services.
func sameNode(a, b *corev1.Node) bool {
	return reflect.DeepEqual(a.Labels, b.Labels) && reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status.Addresses, b.Status.Addresses)
}
