package expose

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// fieldManager owns the fields that are written here (server-side apply).
const fieldManager = "fairway-expose"

// Objects are what makes an exposure; Ingress and Secret may be nil.
type Objects struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
	Ingress *networkingv1.Ingress
	Secret  *corev1.Secret
}

// Apply writes the objects, all but the Service as the Service's own so that they go when
// it goes, and removes slices that an earlier call made and that are no longer wanted:
// those last, so that no endpoint that stays is missing in between. First it asks the
// server whether it would take all of them, so that a refusal leaves nothing half made. A
// Service of the same name that has a selector is an error, and so are an Ingress or a
// Secret that somebody else made, a Secret that isn't there, and a host that leads elsewhere.
// Whether the Service is new is said, too.
func Apply(ctx context.Context, client kubernetes.Interface, o Objects) (written *corev1.Service, isNew bool, err error) {
	have, err := client.CoreV1().Services(o.Service.Namespace).Get(ctx, o.Service.Name, metav1.GetOptions{})
	if err == nil && len(have.Spec.Selector) > 0 {
		return nil, false, fmt.Errorf("service %s/%s has a selector: its endpoints are the pods that it selects", o.Service.Namespace, o.Service.Name)
	}
	isNew = apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return nil, false, fmt.Errorf("look up Service %s/%s: %w", o.Service.Namespace, o.Service.Name, err)
	}
	for _, check := range []func(context.Context, kubernetes.Interface, Objects) error{checkOwners, checkCertificate, checkHosts} {
		if err := check(ctx, client, o); err != nil {
			return nil, false, err
		}
	}
	if _, err := write(ctx, client, o, metav1.DryRunAll); err != nil {
		return nil, false, err
	}
	if written, err = write(ctx, client, o); err != nil {
		return nil, false, err
	}
	wanted := map[string]bool{}
	for _, s := range o.Slices {
		wanted[s.Name] = true
	}
	return written, isNew, prune(ctx, client, o.Service, wanted)
}

// checkOwners refuses to overwrite what somebody else made.
func checkOwners(ctx context.Context, client kubernetes.Interface, o Objects) error {
	if o.Ingress != nil {
		have, err := client.NetworkingV1().Ingresses(o.Ingress.Namespace).Get(ctx, o.Ingress.Name, metav1.GetOptions{})
		if err == nil && have.Labels[managedBy] != Manager {
			return fmt.Errorf("ingress %s/%s is there, and expose didn't make it: give this Service another name", have.Namespace, have.Name)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("look up Ingress %s/%s: %w", o.Ingress.Namespace, o.Ingress.Name, err)
		}
	}
	if o.Secret != nil {
		have, err := client.CoreV1().Secrets(o.Secret.Namespace).Get(ctx, o.Secret.Name, metav1.GetOptions{})
		if err == nil && have.Labels[managedBy] != Manager {
			return fmt.Errorf("secret %s/%s is there, and expose didn't make it: name it by --tls %[2]s", have.Namespace, have.Name)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("look up Secret %s/%s: %w", o.Secret.Namespace, o.Secret.Name, err)
		}
	}
	return nil
}

// checkCertificate refuses the name of a Secret that isn't there, or holds no certificate. Who may
// not read it is believed.
func checkCertificate(ctx context.Context, client kubernetes.Interface, o Objects) error {
	if o.Ingress == nil || o.Secret != nil || o.Ingress.Annotations[annotationACME] != "" {
		return nil
	}
	for _, t := range o.Ingress.Spec.TLS {
		secret, err := client.CoreV1().Secrets(o.Ingress.Namespace).Get(ctx, t.SecretName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("--tls %s: there is no Secret %s/%[1]s; --tls CERTFILE,KEYFILE makes one", t.SecretName, o.Ingress.Namespace)
		case err != nil && !apierrors.IsForbidden(err):
			return fmt.Errorf("look up Secret %s/%s: %w", o.Ingress.Namespace, t.SecretName, err)
		case err == nil && secret.Type != corev1.SecretTypeTLS:
			return fmt.Errorf("--tls %s: the Secret is of type %s, not %s", t.SecretName, secret.Type, corev1.SecretTypeTLS)
		}
	}
	return nil
}

// checkHosts refuses a host and path that another Ingress of the class has: the older one goes on
// having it.
func checkHosts(ctx context.Context, client kubernetes.Interface, o Objects) error {
	if o.Ingress == nil {
		return nil
	}
	list, err := client.NetworkingV1().Ingresses(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return nil // an Event will say it
	}
	if err != nil {
		return fmt.Errorf("list Ingresses: %w", err)
	}
	for _, have := range list.Items {
		if have.Namespace == o.Ingress.Namespace && have.Name == o.Ingress.Name || have.Spec.IngressClassName == nil || *have.Spec.IngressClassName != ingressClass {
			continue
		}
		for _, rule := range have.Spec.Rules {
			for _, own := range o.Ingress.Spec.Rules {
				if rule.HTTP != nil && rule.Host == own.Host && slices.ContainsFunc(rule.HTTP.Paths, func(p networkingv1.HTTPIngressPath) bool { return p.Path == own.HTTP.Paths[0].Path }) {
					return fmt.Errorf("--host %s: path %s of it belongs to Ingress %s/%s; give another --path, or remove that one", own.Host, own.HTTP.Paths[0].Path, have.Namespace, have.Name)
				}
			}
		}
	}
	return nil
}

// write writes all, or with dry run has the server say whether it would.
func write(ctx context.Context, client kubernetes.Interface, o Objects, dryRun ...string) (*corev1.Service, error) {
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force, DryRun: dryRun}
	data, err := json.Marshal(o.Service)
	if err != nil {
		return nil, fmt.Errorf("encode Service: %w", err)
	}
	namespace := o.Service.Namespace
	written, err := client.CoreV1().Services(namespace).Patch(ctx, o.Service.Name, types.ApplyPatchType, data, options)
	if err != nil {
		return nil, fmt.Errorf("write Service %s/%s: %w", namespace, o.Service.Name, err)
	}
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: written.Name, UID: written.UID}}
	for _, s := range o.Slices {
		s.OwnerReferences = owners
		if data, err = json.Marshal(s); err != nil {
			return nil, fmt.Errorf("encode EndpointSlice: %w", err)
		}
		if _, err := client.DiscoveryV1().EndpointSlices(namespace).Patch(ctx, s.Name, types.ApplyPatchType, data, options); err != nil {
			return nil, fmt.Errorf("write EndpointSlice %s/%s: %w", namespace, s.Name, err)
		}
	}
	if o.Secret != nil {
		o.Secret.OwnerReferences = owners
		if data, err = json.Marshal(o.Secret); err != nil {
			return nil, fmt.Errorf("encode Secret: %w", err)
		}
		if _, err := client.CoreV1().Secrets(namespace).Patch(ctx, o.Secret.Name, types.ApplyPatchType, data, options); err != nil {
			return nil, fmt.Errorf("write Secret %s/%s: %w", namespace, o.Secret.Name, err)
		}
	}
	if o.Ingress != nil {
		o.Ingress.OwnerReferences = owners
		if data, err = json.Marshal(o.Ingress); err != nil {
			return nil, fmt.Errorf("encode Ingress: %w", err)
		}
		if _, err := client.NetworkingV1().Ingresses(namespace).Patch(ctx, o.Ingress.Name, types.ApplyPatchType, data, options); err != nil {
			return nil, fmt.Errorf("write Ingress %s/%s: %w", namespace, o.Ingress.Name, err)
		}
	}
	return written, nil
}

// Remove deletes a Service that was exposed. What expose made beside it is its own and
// goes with it. Services with a selector, and those that another made, stay.
func Remove(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	have, err := client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("service %s/%s isn't there; `fairway ls` lists those that are", namespace, name)
	}
	if err != nil {
		return fmt.Errorf("look up Service %s/%s: %w", namespace, name, err)
	}
	if !slices.ContainsFunc(have.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == fieldManager }) {
		return fmt.Errorf("service %s/%s wasn't made by expose: delete it by fairway kubectl delete service", namespace, name)
	}
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(have.UID))}
	if err := client.CoreV1().Services(namespace).Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Service %s/%s: %w", namespace, name, err)
	}
	return nil
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
