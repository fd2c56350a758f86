// Package scheme holds the API kinds that the server knows, and how they are
// defaulted, selected by field and put on the wire.
//
// The published k8s.io/api types serve as the internal version too: nothing
// is converted between hub and version, and strategies see the types that
// every client-go user knows.
package scheme

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/fairway-net/fairway/apiserver/upstream"
)

// GroupVersions are the API groups served, in the order of discovery.
var GroupVersions = []schema.GroupVersion{
	corev1.SchemeGroupVersion,
	admissionregistrationv1.SchemeGroupVersion,
	appsv1.SchemeGroupVersion,
	authenticationv1.SchemeGroupVersion,
	authorizationv1.SchemeGroupVersion,
	autoscalingv1.SchemeGroupVersion,
	batchv1.SchemeGroupVersion,
	certificatesv1.SchemeGroupVersion,
	coordinationv1.SchemeGroupVersion,
	discoveryv1.SchemeGroupVersion,
	eventsv1.SchemeGroupVersion,
	flowcontrolv1.SchemeGroupVersion,
	networkingv1.SchemeGroupVersion,
	policyv1.SchemeGroupVersion,
	rbacv1.SchemeGroupVersion,
	schedulingv1.SchemeGroupVersion,
}

// Scheme is the type registry with the codecs that go with it.
type Scheme struct {
	*runtime.Scheme
	// External knows the published versions only. OpenAPI names are derived
	// from it: in the full scheme every type has two names.
	External   *runtime.Scheme
	Codecs     serializer.CodecFactory
	Parameters runtime.ParameterCodec
}

// New builds a Scheme with every kind, default and field label registered.
func New() (*Scheme, error) {
	external := runtime.NewScheme()
	if err := addPublished(external); err != nil {
		return nil, err
	}
	s := runtime.NewScheme()
	if err := addPublished(s); err != nil {
		return nil, err
	}
	if err := addOptions(s); err != nil {
		return nil, fmt.Errorf("register options of requests: %w", err)
	}
	if err := metainternalversion.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("register list options: %w", err)
	}
	for _, gv := range GroupVersions {
		if gv == eventsv1.SchemeGroupVersion {
			if err := addEvents(s); err != nil {
				return nil, err
			}
		} else {
			addInternal(s, gv)
		}
		if err := s.SetVersionPriority(gv); err != nil {
			return nil, fmt.Errorf("order versions of %s: %w", gv, err)
		}
	}
	if err := upstream.RegisterDefaults(s); err != nil {
		return nil, err
	}
	if err := addFieldLabels(s); err != nil {
		return nil, err
	}
	return &Scheme{
		Scheme:     s,
		External:   external,
		Codecs:     serializer.NewCodecFactory(s),
		Parameters: runtime.NewParameterCodec(s),
	}, nil
}

func addPublished(s *runtime.Scheme) error {
	// Delete and list options are decoded as meta/v1 and as core "v1".
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme,
		admissionregistrationv1.AddToScheme,
		appsv1.AddToScheme,
		authenticationv1.AddToScheme,
		authorizationv1.AddToScheme,
		autoscalingv1.AddToScheme,
		batchv1.AddToScheme,
		certificatesv1.AddToScheme,
		coordinationv1.AddToScheme,
		discoveryv1.AddToScheme,
		eventsv1.AddToScheme,
		flowcontrolv1.AddToScheme,
		networkingv1.AddToScheme,
		policyv1.AddToScheme,
		rbacv1.AddToScheme,
		schedulingv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return fmt.Errorf("register API types: %w", err)
		}
	}
	return nil
}

// addInternal registers every type of a published version once more as the
// group's internal version, which the generic server insists on.
func addInternal(s *runtime.Scheme, gv schema.GroupVersion) {
	internal := schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}
	meta := runtime.NewScheme()
	metav1.AddToGroupVersion(meta, gv)
	for kind := range s.KnownTypes(gv) {
		gvk := gv.WithKind(kind)
		if meta.Recognizes(gvk) {
			continue
		}
		obj, err := s.New(gvk)
		if err != nil {
			// KnownTypes has just named it.
			panic(err)
		}
		s.AddKnownTypeWithName(internal.WithKind(kind), obj)
	}
}
