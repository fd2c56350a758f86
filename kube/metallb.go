package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
)

// MetalLB is a way to the objects of the group metallb.io.
type MetalLB struct {
	V1beta1, V1beta2 rest.Interface // of the versions; BGPPeers are read as v1beta2
}

// An agent writes an object for each Service that it announces, two requests each.
const (
	statusQPS   = 100
	statusBurst = 500
)

// NewMetalLB makes a client for the group metallb.io. Its objects travel as
// JSON, as all custom resources do.
func NewMetalLB(cfg *rest.Config) (*MetalLB, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make client for metallb.io: %w", err)
		}
	}
	codecs := serializer.NewCodecFactory(scheme)
	client := func(version schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(cfg)
		if c.QPS == 0 { // client-go's 5 a second have each Service's status wait for the others'
			c.QPS, c.Burst = statusQPS, statusBurst
		}
		c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		c.APIPath, c.GroupVersion, c.NegotiatedSerializer = "/apis", &version, codecs.WithoutConversion()
		return rest.RESTClientFor(c)
	}
	old, err := client(v1beta1.GroupVersion)
	if err != nil {
		return nil, fmt.Errorf("make client for metallb.io: %w", err)
	}
	current, err := client(v1beta2.GroupVersion)
	if err != nil {
		return nil, fmt.Errorf("make client for metallb.io: %w", err)
	}
	return &MetalLB{V1beta1: old, V1beta2: current}, nil
}

// Await returns once the API serves the group metallb.io, or with false once ctx
// is done. Where it doesn't, it is asked ever more seldom, at last every 30 s:
// most clusters never will.
func (m *MetalLB) Await(ctx context.Context) bool {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 30 * time.Second}
	for {
		err := m.V1beta1.Get().AbsPath("/apis/metallb.io/v1beta1").Do(ctx).Error()
		if err == nil || apierrors.IsForbidden(err) {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff.Step()):
		}
	}
}
