// Package upstream holds the kinds to what Kubernetes says of them: defaults, what a write may set, validation and
// warnings are those of k8s.io/kubernetes, the code of kube-apiserver.
//
// kube-apiserver's code works on internal types, this server on the published ones. Each call converts; most of a
// conversion shares memory, and costs little.
//
//   - scheme.go: both kinds of types, conversion, defaults
//   - rules.go: what the registry asks of a kind
//   - kinds.go: the rules of each kind
//   - checks.go: validation of what has no strategy that can be used alone
package upstream

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	admissionregistrationv1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsv1 "k8s.io/kubernetes/pkg/apis/apps/v1"
	authenticationv1 "k8s.io/kubernetes/pkg/apis/authentication/v1"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchv1 "k8s.io/kubernetes/pkg/apis/batch/v1"
	"k8s.io/kubernetes/pkg/apis/certificates"
	certificatesv1 "k8s.io/kubernetes/pkg/apis/certificates/v1"
	"k8s.io/kubernetes/pkg/apis/coordination"
	coordinationv1 "k8s.io/kubernetes/pkg/apis/coordination/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/discovery"
	discoveryv1 "k8s.io/kubernetes/pkg/apis/discovery/v1"
	"k8s.io/kubernetes/pkg/apis/events"
	eventsv1 "k8s.io/kubernetes/pkg/apis/events/v1"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	flowcontrolv1 "k8s.io/kubernetes/pkg/apis/flowcontrol/v1"
	"k8s.io/kubernetes/pkg/apis/networking"
	networkingv1 "k8s.io/kubernetes/pkg/apis/networking/v1"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyv1 "k8s.io/kubernetes/pkg/apis/policy/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacv1 "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/capabilities"
)

// RegisterDefaults adds the defaulting functions to a scheme of published types.
func RegisterDefaults(s *runtime.Scheme) error {
	for _, register := range []func(*runtime.Scheme) error{
		admissionregistrationv1.RegisterDefaults, appsv1.RegisterDefaults, authenticationv1.RegisterDefaults,
		batchv1.RegisterDefaults, certificatesv1.RegisterDefaults, corev1.RegisterDefaults, discoveryv1.RegisterDefaults,
		flowcontrolv1.RegisterDefaults, networkingv1.RegisterDefaults, rbacv1.RegisterDefaults, schedulingv1.RegisterDefaults,
	} {
		if err := register(s); err != nil {
			return fmt.Errorf("register defaults: %w", err)
		}
	}
	return nil
}

// types knows the internal types and the published ones.
var types = sync.OnceValue(func() *runtime.Scheme {
	capabilities.Setup(true, 0) // containers may be privileged, as with --allow-privileged of kube-apiserver
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistration.AddToScheme, admissionregistrationv1.AddToScheme, apps.AddToScheme, appsv1.AddToScheme,
		batch.AddToScheme, batchv1.AddToScheme, certificates.AddToScheme, certificatesv1.AddToScheme,
		coordination.AddToScheme, coordinationv1.AddToScheme, core.AddToScheme, corev1.AddToScheme,
		discovery.AddToScheme, discoveryv1.AddToScheme, events.AddToScheme, eventsv1.AddToScheme, flowcontrol.AddToScheme, flowcontrolv1.AddToScheme,
		networking.AddToScheme, networkingv1.AddToScheme, policy.AddToScheme, policyv1.AddToScheme,
		rbac.AddToScheme, rbacv1.AddToScheme, scheduling.AddToScheme, schedulingv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // these are the same types on each start
		}
	}
	return s
})

// toInternal returns a published object as kube-apiserver's code takes it. It shares memory with the object.
func toInternal(obj runtime.Object) (runtime.Object, error) {
	out, err := types().UnsafeConvertToVersion(obj, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", obj, err)
	}
	return out, nil
}
