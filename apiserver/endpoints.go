package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/apiserver/validation"
)

// sliceManager marks the EndpointSlices written here.
const sliceManager = "fairway-apiserver"

// reconcile makes the endpoints of the API's Service the servers listed.
func (p *presence) reconcile(ctx context.Context) error {
	servers, err := p.present(ctx)
	if err != nil {
		return err
	}
	if p.changed != nil {
		var urls []string
		for _, one := range servers {
			urls = append(urls, joinAddress(one.Addr(), int(one.Port())))
		}
		if err := p.changed(urls); err != nil {
			return err
		}
	}
	if p.alone && p.self.Addr().IsLoopback() {
		servers = nil // an endpoint there would mean another machine on every node
	}
	if err := p.writeEndpoints(ctx, apiEndpoints(servers)); err != nil {
		return fmt.Errorf("write Endpoints %s: %w", validation.APIService, err)
	}
	if err := p.writeSlices(ctx, apiSlices(servers)); err != nil {
		return fmt.Errorf("write EndpointSlices of %s: %w", validation.APIService, err)
	}
	return nil
}

// ignoreLostRace drops an error which means that another server has just done the same.
func ignoreLostRace(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func apiEndpoints(servers []netip.AddrPort) *corev1.Endpoints {
	labels := apiLabels()
	// The slices are written here too.
	labels[discoveryv1.LabelSkipMirror] = "true"
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: validation.APIService, Namespace: metav1.NamespaceDefault, Labels: labels}}
	byPort := map[uint16]int{}
	for _, s := range servers {
		i, seen := byPort[s.Port()]
		if !seen {
			i = len(e.Subsets)
			byPort[s.Port()] = i
			e.Subsets = append(e.Subsets, corev1.EndpointSubset{
				Ports: []corev1.EndpointPort{{Name: apiPort, Port: int32(s.Port()), Protocol: corev1.ProtocolTCP}},
			})
		}
		e.Subsets[i].Addresses = append(e.Subsets[i].Addresses, corev1.EndpointAddress{IP: s.Addr().String()})
	}
	return e
}

func (p *presence) writeEndpoints(ctx context.Context, wanted *corev1.Endpoints) error {
	endpoints := p.api.CoreV1().Endpoints(wanted.Namespace)
	current, err := endpoints.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = endpoints.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && !equality.Semantic.DeepEqual(current.Subsets, wanted.Subsets):
		current.Subsets, current.Labels = wanted.Subsets, wanted.Labels
		_, err = endpoints.Update(ctx, current, metav1.UpdateOptions{})
	}
	return ignoreLostRace(err)
}

// apiSlices returns a slice for each IP family and port; if there is but one,
// as is usual, under the Service's own name.
func apiSlices(servers []netip.AddrPort) map[string]*discoveryv1.EndpointSlice {
	out := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range servers {
		family := discoveryv1.AddressTypeIPv6
		if s.Addr().Is4() {
			family = discoveryv1.AddressTypeIPv4
		}
		name := fmt.Sprintf("%s-%s-%d", validation.APIService, strings.ToLower(string(family)), s.Port())
		slice := out[name]
		if slice == nil {
			port, number, protocol := apiPort, int32(s.Port()), corev1.ProtocolTCP
			slice = &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Name: name, Namespace: metav1.NamespaceDefault,
					Labels: map[string]string{discoveryv1.LabelServiceName: validation.APIService, discoveryv1.LabelManagedBy: sliceManager},
				},
				AddressType: family,
				Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &protocol}},
			}
			out[name] = slice
		}
		ready := true
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{s.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	if len(out) == 1 {
		for name, slice := range out {
			delete(out, name)
			slice.Name = validation.APIService
			out[slice.Name] = slice
		}
	}
	return out
}

// listPeriod is how often all slices are looked through for one that is too many. The API
// would go through those of all Services for it.
const listPeriod = 5 * time.Minute

// slicesStand reports whether the slices that are wanted were found to be all that there are,
// not long ago, and still say what they should.
func (p *presence) slicesStand(ctx context.Context, wanted map[string]*discoveryv1.EndpointSlice) (bool, error) {
	if time.Since(p.slicesListed) > listPeriod || !slices.Equal(p.sliceNames, slices.Sorted(maps.Keys(wanted))) {
		return false, nil
	}
	for name, slice := range wanted {
		current, err := p.api.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreLostRace(err)
		}
		if current.AddressType != slice.AddressType || !saysTheSame(current, slice) {
			return false, nil
		}
	}
	return true, nil
}

// saysTheSame reports whether a slice says what is wanted; it may have further labels.
func saysTheSame(current, wanted *discoveryv1.EndpointSlice) bool {
	for key, value := range wanted.Labels {
		if current.Labels[key] != value {
			return false
		}
	}
	return equality.Semantic.DeepEqual(current.Endpoints, wanted.Endpoints) && equality.Semantic.DeepEqual(current.Ports, wanted.Ports)
}

// writeSlices adds before it deletes: the API is reachable all the while.
func (p *presence) writeSlices(ctx context.Context, wanted map[string]*discoveryv1.EndpointSlice) error {
	if stand, err := p.slicesStand(ctx, wanted); stand || err != nil {
		return err
	}
	p.sliceNames, p.slicesListed = slices.Sorted(maps.Keys(wanted)), time.Time{}
	if err := p.listAndWriteSlices(ctx, wanted); err != nil {
		return err
	}
	p.slicesListed = time.Now()
	return nil
}

func (p *presence) listAndWriteSlices(ctx context.Context, wanted map[string]*discoveryv1.EndpointSlice) error {
	client := p.api.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	list, err := client.List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + validation.APIService + "," + discoveryv1.LabelManagedBy + "=" + sliceManager,
	})
	if err != nil {
		return err
	}
	var stale []string
	present := map[string]bool{}
	for i := range list.Items {
		current := &list.Items[i]
		slice := wanted[current.Name]
		if slice == nil || slice.AddressType != current.AddressType {
			// The family of a slice can't be changed.
			stale = append(stale, current.Name)
			continue
		}
		present[current.Name] = true
		if saysTheSame(current, slice) {
			continue
		}
		current.Endpoints, current.Ports = slice.Endpoints, slice.Ports
		if _, err := client.Update(ctx, current, metav1.UpdateOptions{}); ignoreLostRace(err) != nil {
			return err
		}
	}
	for name, slice := range wanted {
		if !present[name] {
			if _, err := client.Create(ctx, slice, metav1.CreateOptions{}); ignoreLostRace(err) != nil {
				return err
			}
		}
	}
	for _, name := range stale {
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); ignoreLostRace(err) != nil {
			return err
		}
	}
	return nil
}
