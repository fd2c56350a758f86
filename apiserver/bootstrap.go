package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/apiserver/validation"
)

// bootstrap makes the objects that every cluster has: the first namespaces,
// and the Service by which the API itself is found.
func (s *Server) bootstrap(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	if err := s.bootstrapService(ctx, client); err != nil {
		return err
	}
	if err := s.bootstrapEndpoints(ctx, client); err != nil {
		return err
	}
	return s.bootstrapSlice(ctx, client)
}

// apiPort is the name of the API Service's port.
const apiPort = "https"

func apiLabels() map[string]string {
	return map[string]string{"component": "apiserver", "provider": "kubernetes"}
}

func (s *Server) bootstrapService(ctx context.Context, client kubernetes.Interface) error {
	services := client.CoreV1().Services(metav1.NamespaceDefault)
	_, err := services.Get(ctx, validation.APIService, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	single := corev1.IPFamilyPolicySingleStack
	_, err = services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: validation.APIService, Labels: apiLabels()},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeClusterIP,
			ClusterIP:      s.allocator.First().String(),
			IPFamilyPolicy: &single,
			Ports: []corev1.ServicePort{{
				Name: apiPort, Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt(s.config.Port),
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Service %s: %w", validation.APIService, err)
	}
	return nil
}

func (s *Server) bootstrapEndpoints(ctx context.Context, client kubernetes.Interface) error {
	endpoints := client.CoreV1().Endpoints(metav1.NamespaceDefault)
	labels := apiLabels()
	// The slice is written here too.
	labels[discoveryv1.LabelSkipMirror] = "true"
	wanted := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: validation.APIService, Labels: labels},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: s.config.AdvertiseAddress.String()}},
			Ports:     []corev1.EndpointPort{{Name: apiPort, Port: int32(s.config.Port), Protocol: corev1.ProtocolTCP}},
		}},
	}
	current, err := endpoints.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = endpoints.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && !equality.Semantic.DeepEqual(current.Subsets, wanted.Subsets):
		current.Subsets, current.Labels = wanted.Subsets, wanted.Labels
		_, err = endpoints.Update(ctx, current, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write Endpoints %s: %w", wanted.Name, err)
	}
	return nil
}

func (s *Server) bootstrapSlice(ctx context.Context, client kubernetes.Interface) error {
	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	family := discoveryv1.AddressTypeIPv6
	if s.config.AdvertiseAddress.Is4() {
		family = discoveryv1.AddressTypeIPv4
	}
	name, port, protocol, ready := apiPort, int32(s.config.Port), corev1.ProtocolTCP, true
	wanted := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: validation.APIService, Labels: map[string]string{discoveryv1.LabelServiceName: validation.APIService}},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{s.config.AdvertiseAddress.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	current, err := slices.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err == nil && current.AddressType != family {
		// The family can't be changed.
		if err := slices.Delete(ctx, wanted.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("replace EndpointSlice %s: %w", wanted.Name, err)
		}
		current, err = slices.Get(ctx, wanted.Name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		_, err = slices.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && !(equality.Semantic.DeepEqual(current.Endpoints, wanted.Endpoints) && equality.Semantic.DeepEqual(current.Ports, wanted.Ports)):
		current.Endpoints, current.Ports, current.Labels = wanted.Endpoints, wanted.Ports, wanted.Labels
		_, err = slices.Update(ctx, current, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write EndpointSlice %s: %w", wanted.Name, err)
	}
	return nil
}
