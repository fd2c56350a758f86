package gateway

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	ingress "github.com/fairway-net/fairway/ingress/compile"
)

const firstPort, lastPort = ingress.FirstPort, ingress.LastPort

// ports are the engines' ports in use, and whose they are: "namespace/service:port".
type ports struct {
	holders map[int32]string
	next    int32
}

func holderOf(s *corev1.Service, port int32) string {
	return fmt.Sprintf("%s/%s:%d", s.Namespace, s.Name, port)
}

// takenPorts lists the ports that Services of Gateways have. Whoever may write to a
// Service may name the port of another Gateway there: who had a port keeps it, then the
// oldest Service.
func (c *Controller) takenPorts() *ports {
	p := &ports{holders: map[int32]string{}, next: firstPort}
	var list []*corev1.Service
	for _, s := range c.objects.Services {
		if name := s.Labels[gatewayv1.GatewayNameLabelKey]; name != "" && s.Name == ingress.ServiceName(name) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, had := range []bool{true, false} {
		for _, s := range list {
			for _, sp := range s.Spec.Ports {
				target, holder := int32(sp.TargetPort.IntValue()), holderOf(s, sp.Port)
				if target >= firstPort && target <= lastPort && p.holders[target] == "" && (!had || c.ports != nil && c.ports.holders[target] == holder) {
					p.holders[target] = holder
				}
			}
		}
	}
	return p
}

// take chooses a port for one of a Gateway, but never the same number: that
// is how ports of streams are told from the engines'.
func (p *ports) take(holder string, but int32) (int32, error) {
	for port := p.next; port <= lastPort; port++ {
		if p.holders[port] == "" && port != but {
			p.holders[port] = holder
			if port == p.next {
				p.next++
			}
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port between %d and %d is free for another port of a Gateway", firstPort, lastPort)
}

// writeServices makes the Services and their endpoints. It goes one by one
// where ports are chosen.
func (c *Controller) writeServices(ctx context.Context, out *ingress.Output) error {
	var firstErr error
	if out.Gateways[ingress.IngressGateway] == nil { // nobody owns its Service
		key := types.NamespacedName{Namespace: ingress.IngressGateway.Namespace, Name: ingress.ServiceName(ingress.IngressGateway.Name)}
		if s := c.objects.Services[key]; s != nil && s.Labels[gatewayv1.GatewayNameLabelKey] == ingress.IngressGateway.Name {
			firstErr = c.watch.Core.CoreV1().Services(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{})
		}
	}
	if err := c.freeServices(ctx, out); err != nil && firstErr == nil {
		firstErr = err
	}
	for name, result := range out.Gateways {
		if err := c.writeService(ctx, name, result, out); err != nil && firstErr == nil {
			firstErr = fmt.Errorf("service of Gateway %s: %w", name, err)
		}
	}
	return firstErr
}

// freeServices deletes the Services of Gateways that are another controller's now.
func (c *Controller) freeServices(ctx context.Context, out *ingress.Output) error {
	foreign := map[string]bool{}
	for _, class := range c.objects.Classes {
		foreign[class.Name] = class.Spec.ControllerName != ingress.Controller
	}
	for _, g := range c.objects.Gateways {
		key := types.NamespacedName{Namespace: g.Namespace, Name: ingress.ServiceName(g.Name)}
		s := c.objects.Services[key]
		if s == nil || !foreign[string(g.Spec.GatewayClassName)] || out.Gateways[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] != nil ||
			s.Labels[gatewayv1.GatewayNameLabelKey] != g.Name || s.DeletionTimestamp != nil || !metav1.IsControlledBy(s, g) {
			continue
		}
		err := c.watch.Core.CoreV1().Services(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Service %s of a Gateway that has another class: %w", key, err)
		}
	}
	return nil
}

func (c *Controller) writeService(ctx context.Context, name types.NamespacedName, result *ingress.GatewayResult, out *ingress.Output) error {
	if len(result.Ports) == 0 || len(name.Name) > longestName {
		return nil
	}
	key := types.NamespacedName{Namespace: name.Namespace, Name: ingress.ServiceName(name.Name)}
	current := c.objects.Services[key]
	if current != nil && current.Labels[gatewayv1.GatewayNameLabelKey] != name.Name {
		return fmt.Errorf("the Service %s is somebody else's", key)
	}
	wanted, err := c.service(name, key, result, current)
	if err != nil {
		return err
	}
	services := c.watch.Core.CoreV1().Services(key.Namespace)
	switch {
	case current == nil:
		if current, err = services.Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create Service: %w", err)
		}
	case !sameService(current, wanted):
		if current, err = services.Update(ctx, wanted, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update Service: %w", err)
		}
	}
	return c.writeSlices(ctx, name, current, out)
}

// service is what a Gateway's Service should be; what others have written to it
// stays.
func (c *Controller) service(name, key types.NamespacedName, result *ingress.GatewayResult, current *corev1.Service) (*corev1.Service, error) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if current != nil {
		s = current.DeepCopy()
	}
	s.Labels, s.Annotations = cloned(s.Labels), cloned(s.Annotations)
	old := s.Spec.Ports
	s.Spec.Ports = nil
	streams := false
	for _, p := range result.Ports {
		sp, err := c.servicePort(s, p, old)
		if err != nil {
			return nil, err
		}
		streams = streams || p.Stream
		s.Spec.Ports = append(s.Spec.Ports, sp)
	}
	// The client's address stays what it is. Endpoints of streams may be on any
	// node, though.
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	if streams {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyCluster, 0
	}
	if s.Spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicyPreferDualStack
		s.Spec.IPFamilyPolicy = &policy
	}
	var gateway *gatewayv1.Gateway
	for _, g := range c.objects.Gateways {
		if g.Namespace == name.Namespace && g.Name == name.Name {
			gateway = g
		}
	}
	c.setAddresses(s, gateway)
	if s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) == 0 {
		s.Spec.ExternalTrafficPolicy = "" // nobody outside reaches it: no node has an address
	}
	if gateway != nil {
		describe(s, gateway)
		s.Labels[gatewayv1.GatewayClassNameLabelKey] = string(gateway.Spec.GatewayClassName)
	}
	s.Labels[gatewayv1.GatewayNameLabelKey] = name.Name // whatever the Gateway says of labels
	s.Spec.Selector = nil                               // endpoints are engines, and nobody else's pods
	return s, nil
}

// setAddresses says at which addresses the Service answers.
func (c *Controller) setAddresses(s *corev1.Service, gateway *gatewayv1.Gateway) {
	var asked []string
	if gateway != nil {
		for _, a := range gateway.Spec.Addresses {
			if a.Value != "" {
				asked = append(asked, a.Value)
			}
		}
	}
	if c.options.NodeAddresses && len(asked) == 0 {
		s.Spec.Type, s.Spec.ExternalIPs, s.Spec.HealthCheckNodePort = corev1.ServiceTypeClusterIP, nil, 0
		for _, e := range c.live {
			for _, a := range e.addresses {
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
			}
		}
		return
	}
	s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, nil
	if len(asked) > 0 {
		s.Annotations[v1beta1.AnnotationLoadBalancerIPs] = strings.Join(asked, ",")
	} else {
		delete(s.Annotations, v1beta1.AnnotationLoadBalancerIPs)
	}
}

// annotationDescribed lists the labels and annotations of a Service that its Gateway has
// given it, which go when the Gateway doesn't have them any more.
const annotationDescribed = "gateway.fairway.dev/from-gateway"

// longestName is how long the name of a Gateway may be for its label.
const longestName = 63

// describe takes over what the Gateway says of its Service.
func describe(s *corev1.Service, g *gatewayv1.Gateway) {
	for name := range strings.SplitSeq(s.Annotations[annotationDescribed], ",") {
		kind, key, _ := strings.Cut(name, "=")
		switch kind {
		case "label":
			delete(s.Labels, key)
		case "annotation":
			delete(s.Annotations, key)
		}
	}
	delete(s.Annotations, annotationDescribed)
	var given []string
	if i := g.Spec.Infrastructure; i != nil {
		for k, v := range i.Labels {
			s.Labels[string(k)] = string(v)
			given = append(given, "label="+string(k))
		}
		for k, v := range i.Annotations {
			s.Annotations[string(k)] = string(v)
			given = append(given, "annotation="+string(k))
		}
	}
	if slices.Sort(given); len(given) > 0 {
		s.Annotations[annotationDescribed] = strings.Join(given, ",")
	}
	yes := true
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: g.Name, UID: g.UID, Controller: &yes, BlockOwnerDeletion: &yes,
	}}
}

// servicePort keeps a port as it is, or chooses where engines listen for it. The
// ports of one number, for TCP and HTTP/3, are one at the engines, too.
func (c *Controller) servicePort(s *corev1.Service, p ingress.Port, old []corev1.ServicePort) (corev1.ServicePort, error) {
	if !p.Stream && p.Protocol == corev1.ProtocolUDP {
		for _, sp := range s.Spec.Ports {
			if uint16(sp.Port) == p.Number && sp.Protocol == corev1.ProtocolTCP {
				sp.Name, sp.Protocol, sp.NodePort = fmt.Sprintf("udp-%d", p.Number), corev1.ProtocolUDP, 0
				for _, o := range old {
					if o.Port == sp.Port && o.Protocol == sp.Protocol {
						sp.NodePort = o.NodePort
					}
				}
				return sp, nil
			}
		}
	}
	sp := corev1.ServicePort{Name: fmt.Sprintf("%s-%d", strings.ToLower(string(p.Protocol)), p.Number), Port: int32(p.Number), Protocol: p.Protocol}
	holder := holderOf(s, sp.Port)
	for _, o := range old {
		if uint16(o.Port) != p.Number || o.Protocol != p.Protocol {
			continue
		}
		if target := int32(o.TargetPort.IntValue()); p.Stream && target == o.Port || !p.Stream && target != o.Port && c.ports.holders[target] == holder {
			return o, nil
		}
		sp.Name, sp.NodePort = o.Name, o.NodePort // only where it leads to is another's
	}
	sp.TargetPort = intstr.FromInt32(int32(p.Number)) // of streams, nobody looks at it
	if !p.Stream {
		target, err := c.ports.take(holder, int32(p.Number))
		if err != nil {
			return sp, err
		}
		sp.TargetPort = intstr.FromInt32(target)
	}
	return sp, nil
}

func sameService(a, b *corev1.Service) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

func cloned(m map[string]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	return out
}
