package expose

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// fieldManager owns the fields that are written here (server-side apply).
const fieldManager = "fairway-expose"

// Apply writes the objects, the slices as the Service's own so that they go when
// it goes, and removes slices that an earlier call made and that
// are no longer wanted: those last, so that no endpoint that stays is missing in
// between. A Service of the same name that has a selector is an error.
func Apply(ctx context.Context, client kubernetes.Interface, service *corev1.Service, slices []*discoveryv1.EndpointSlice) (*corev1.Service, error) {
	have, err := client.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
	if err == nil && len(have.Spec.Selector) > 0 {
		return nil, fmt.Errorf("service %s/%s has a selector: its endpoints are the pods that it selects", service.Namespace, service.Name)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("look up Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: new(bool)}
	*options.Force = true
	data, err := json.Marshal(service)
	if err != nil {
		return nil, fmt.Errorf("encode Service: %w", err)
	}
	written, err := client.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.ApplyPatchType, data, options)
	if err != nil {
		return nil, fmt.Errorf("write Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	wanted := map[string]bool{}
	for _, s := range slices {
		wanted[s.Name] = true
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: written.Name, UID: written.UID}}
		if data, err = json.Marshal(s); err != nil {
			return nil, fmt.Errorf("encode EndpointSlice: %w", err)
		}
		if _, err := client.DiscoveryV1().EndpointSlices(s.Namespace).Patch(ctx, s.Name, types.ApplyPatchType, data, options); err != nil {
			return nil, fmt.Errorf("write EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return written, prune(ctx, client, service, wanted)
}

func prune(ctx context.Context, client kubernetes.Interface, service *corev1.Service, wanted map[string]bool) error {
	of := client.DiscoveryV1().EndpointSlices(service.Namespace)
	list, err := of.List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name + "," + discoveryv1.LabelManagedBy + "=" + Manager,
	})
	if err != nil {
		return fmt.Errorf("list EndpointSlices of Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	for _, s := range list.Items {
		if wanted[s.Name] {
			continue
		}
		if err := of.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return nil
}
