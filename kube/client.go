package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	typeddiscovery "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fairway-net/fairway/kube/protobuf"
)

// Client makes a client for cfg. Its watches of Services, EndpointSlices and what else is in
// their groups show no managed fields.
func Client(cfg *rest.Config) (kubernetes.Interface, error) {
	c := rest.CopyConfig(cfg)
	if c.RateLimiter == nil && c.QPS > 0 { // one for all groups
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, c.Burst)
	}
	client, err := newLean(c)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	return client, nil
}

// lean is a client whose watches of the groups with many objects decode with fewer copies.
type lean struct {
	kubernetes.Interface
	core      typedcore.CoreV1Interface
	discovery typeddiscovery.DiscoveryV1Interface
}

func (l *lean) CoreV1() typedcore.CoreV1Interface                { return l.core }
func (l *lean) DiscoveryV1() typeddiscovery.DiscoveryV1Interface { return l.discovery }

func newLean(c *rest.Config) (*lean, error) {
	shared, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	whole, err := kubernetes.NewForConfigAndClient(c, shared)
	if err != nil {
		return nil, err
	}
	c.NegotiatedSerializer = protobuf.Lean(rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion(), scheme.Scheme)
	group := func(path string, version schema.GroupVersion) (*rest.RESTClient, error) {
		c := rest.CopyConfig(c)
		c.APIPath, c.GroupVersion = path, &version
		return rest.RESTClientForConfigAndClient(c, shared)
	}
	core, err := group("/api", corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	discovery, err := group("/apis", discoveryv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	return &lean{whole, typedcore.New(core), typeddiscovery.New(discovery)}, nil
}
