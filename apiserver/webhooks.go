package apiserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
)

// resolveTime is how long finding a webhook's endpoint may take.
const resolveTime = 5 * time.Second

// webhooks are the plugins that ask mutating and validating webhooks.
func (s *Server) webhooks(config *genericapiserver.RecommendedConfig, client kubernetes.Interface) (mutation, checks admission.Interface, err error) {
	mutate, err := mutating.NewMutatingWebhook(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("create webhook admission: %w", err)
	}
	validate, err := validating.NewValidatingAdmissionWebhook(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("create webhook admission: %w", err)
	}
	for _, plugin := range []*generic.Webhook{mutate.Webhook, validate.Webhook} {
		plugin.SetExternalKubeClientSet(client)
		plugin.SetExternalKubeInformerFactory(config.SharedInformerFactory)
		plugin.SetServiceResolver(endpointResolver{client})
		plugin.SetUnconditionalAuthorizer(s.access.authorizer)
		plugin.SetExcludedAdmissionResources(neverReviewed)
		plugin.SetDrainedNotification(config.DrainedNotify())
		if err := plugin.ValidateInitialization(); err != nil {
			return nil, nil, fmt.Errorf("set up webhook admission: %w", err)
		}
	}
	return mutate, validate, nil
}

// endpointResolver finds where a Service that a webhook names answers. The server
// may run where no agent translates cluster IPs: it goes to an endpoint itself. It
// asks only for connections, which webhooks keep, so nothing is cached.
type endpointResolver struct{ client kubernetes.Interface }

// ResolveEndpoint implements webhook.ServiceResolver.
func (r endpointResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	service, err := r.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get service %s/%s: %w", namespace, name, err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return httpsURL(service.Spec.ExternalName, port), nil
	}
	portName, found := "", false
	for _, p := range service.Spec.Ports {
		if p.Port == port && p.Protocol == corev1.ProtocolTCP {
			portName, found = p.Name, true
		}
	}
	if !found {
		return nil, fmt.Errorf("service %s/%s has no TCP port %d", namespace, name, port)
	}
	slices, err := r.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + name, ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("list endpoints of service %s/%s: %w", namespace, name, err)
	}
	ready := readyEndpoints(slices.Items, portName)
	if len(ready) == 0 {
		return nil, fmt.Errorf("service %s/%s has no ready endpoint for port %d", namespace, name, port)
	}
	return ready[rand.IntN(len(ready))], nil
}

// readyEndpoints are where the named port of ready endpoints answers.
func readyEndpoints(slices []discoveryv1.EndpointSlice, portName string) []*url.URL {
	var ready []*url.URL
	for _, slice := range slices {
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name == nil && portName != "" || p.Name != nil && *p.Name != portName {
				continue
			}
			for _, e := range slice.Endpoints {
				if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
					ready = append(ready, httpsURL(e.Addresses[0], *p.Port))
				}
			}
		}
	}
	return ready
}

func httpsURL(host string, port int32) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}
}
