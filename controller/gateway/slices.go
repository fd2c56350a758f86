package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// annotationWeight is, on an EndpointSlice, the weight of its endpoints
// (compile.AnnotationWeight).
const annotationWeight = "fairway.dev/weight"

// managedBy is on the EndpointSlices that are ours.
const managedBy = "gateway.fairway.dev"

// writeSlices makes the EndpointSlices of a Gateway's Service what they should
// be: first those that are wanted, then the others go.
func (c *Controller) writeSlices(ctx context.Context, name types.NamespacedName, s *corev1.Service, out *ingress.Output) error {
	wanted := map[string]*discoveryv1.EndpointSlice{}
	c.engineSlices(s, wanted)
	for _, stream := range out.Streams {
		if stream.Gateway == name {
			c.streamSlices(s, stream, wanted)
		}
	}
	slices := c.watch.Core.DiscoveryV1().EndpointSlices(s.Namespace)
	current := map[string]*discoveryv1.EndpointSlice{}
	for _, one := range c.watch.Slices(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}) {
		if one.Labels[discoveryv1.LabelManagedBy] == managedBy {
			current[one.Name] = one
		}
	}
	var errs []error
	for name, w := range wanted {
		have := current[name]
		delete(current, name)
		var err error
		switch {
		case have == nil:
			if _, err = slices.Create(ctx, w, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) { // its labels were taken away
				if have, err = slices.Get(ctx, name, metav1.GetOptions{}); err == nil {
					w.ResourceVersion = have.ResourceVersion
					_, err = slices.Update(ctx, w, metav1.UpdateOptions{})
				}
			}
		case !sameSlice(have, w):
			w.ResourceVersion = have.ResourceVersion
			_, err = slices.Update(ctx, w, metav1.UpdateOptions{})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write EndpointSlice %s: %w", name, err))
		}
	}
	for name := range current {
		if err := slices.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete EndpointSlice %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func sameSlice(a, b *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints) && equality.Semantic.DeepEqual(a.Ports, b.Ports) &&
		a.Annotations[annotationWeight] == b.Annotations[annotationWeight]
}

func newSlice(s *corev1.Service, name string, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	yes := true
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: managedBy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		AddressType: family,
	}
}

// engineSlices are the engines, of each family.
func (c *Controller) engineSlices(s *corev1.Service, wanted map[string]*discoveryv1.EndpointSlice) {
	var ports []discoveryv1.EndpointPort
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.TargetPort.IntValue() != int(p.Port) {
			number, protocol := int32(p.TargetPort.IntValue()), p.Protocol
			ports = append(ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &number, Protocol: &protocol})
		}
	}
	if len(ports) == 0 {
		return
	}
	for family, is := range map[discoveryv1.AddressType]func(netip.Addr) bool{discoveryv1.AddressTypeIPv4: netip.Addr.Is4, discoveryv1.AddressTypeIPv6: netip.Addr.Is6} {
		slice := newSlice(s, s.Name+"-engines-"+strings.ToLower(string(family)), family)
		slice.Ports = ports
		for _, e := range c.serving(types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[gatewayv1.GatewayNameLabelKey]}) {
			for _, a := range e.addresses {
				if is(a) {
					yes, no := true, false
					slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
						Addresses: []string{a.String()}, NodeName: &e.node,
						Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
					})
				}
			}
		}
		if len(slice.Endpoints) > 0 {
			wanted[slice.Name] = slice
		}
	}
}

// serving are the engines that could open all ports of a Gateway; all, if none could.
func (c *Controller) serving(gateway types.NamespacedName) []engine {
	var list []engine
	for _, e := range c.live {
		if !e.lacks(gateway) {
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		return c.live
	}
	return list
}

// lacks reports whether the engine could not open a port of a Gateway.
func (e *engine) lacks(gateway types.NamespacedName) bool {
	for socket := range e.unserved {
		if strings.HasPrefix(socket, gateway.String()+":") {
			return true
		}
	}
	return false
}

// streamSlices are the endpoints of the Services that a stream goes to, each
// with its share of the Service's weight.
func (c *Controller) streamSlices(s *corev1.Service, stream ingress.Stream, wanted map[string]*discoveryv1.EndpointSlice) {
	var portName *string
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; uint16(p.Port) == stream.Port && p.Protocol == stream.Protocol {
			portName = &p.Name
		}
	}
	if portName == nil {
		return
	}
	shares := c.shares(stream)
	for i, b := range stream.Backends {
		for _, from := range c.watch.Slices(b.Service) {
			number, found := portOf(from, b.Port)
			if !found || from.AddressType == discoveryv1.AddressTypeFQDN {
				continue
			}
			slice := newSlice(s, sliceName(fmt.Sprintf("%s-%s-%d-", s.Name, *portName, i), from.Name), from.AddressType)
			protocol := stream.Protocol
			slice.Ports = []discoveryv1.EndpointPort{{Name: portName, Port: &number, Protocol: &protocol}}
			if shares[i] != 1 {
				slice.Annotations = map[string]string{annotationWeight: strconv.Itoa(shares[i])}
			}
			for _, e := range from.Endpoints {
				e.TargetRef = nil // of the other namespace, perhaps
				slice.Endpoints = append(slice.Endpoints, e)
			}
			wanted[slice.Name] = slice
		}
	}
}

// sliceName is the name of a copy. A name that is too long with it ends with
// its hash.
func sliceName(prefix, name string) string {
	if len(prefix)+len(name) <= 253 {
		return prefix + name
	}
	sum := sha256.Sum256([]byte(name))
	return prefix + hex.EncodeToString(sum[:16])
}

func portOf(slice *discoveryv1.EndpointSlice, port *corev1.ServicePort) (int32, bool) {
	for _, p := range slice.Ports {
		if p.Port != nil && (p.Name == nil && port.Name == "" || p.Name != nil && *p.Name == port.Name) {
			return *p.Port, true
		}
	}
	return 0, false
}

// maxWeight is the greatest weight of an endpoint.
const maxWeight = 100

// shares are the weights of each backend's endpoints, such that the backends
// together get what their weights say, however many endpoints each has.
func (c *Controller) shares(stream ingress.Stream) []int {
	exact := make([]float64, len(stream.Backends))
	greatest, least := 0.0, 0.0
	for i, b := range stream.Backends {
		n := len(c.watch.ReadyBackends(b.Service, b.Port))
		if n == 0 {
			n = 1
		}
		exact[i] = float64(b.Weight) / float64(n)
		greatest = max(greatest, exact[i])
		if least == 0 || exact[i] < least {
			least = exact[i]
		}
	}
	scale := min(maxWeight/greatest, 10/least)
	if greatest == least {
		scale = 1 / least
	}
	out := make([]int, len(exact))
	for i := range exact {
		out[i] = max(1, int(exact[i]*scale+0.5))
	}
	return out
}
