package upstream

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	serviceapi "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/discovery"
	discoveryvalidation "k8s.io/kubernetes/pkg/apis/discovery/validation"
)

// check validates an object in its internal form.
func check[I runtime.Object](obj runtime.Object, validate func(I) field.ErrorList) field.ErrorList {
	in, err := toInternal(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return validate(in.(I))
}

func checkUpdate[I runtime.Object](obj, old runtime.Object, validate func(now, before I) field.ErrorList) field.ErrorList {
	in, before, err := bothInternal(obj, old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return validate(in.(I), before.(I))
}

// Service validates a Service; old is nil for a new one.
func Service(s, old *corev1.Service) field.ErrorList {
	if old == nil {
		return check(s, corevalidation.ValidateServiceCreate)
	}
	return checkUpdate(s, old, corevalidation.ValidateServiceUpdate)
}

// ServiceStatus validates a Service's changed status.
func ServiceStatus(s, old *corev1.Service) field.ErrorList {
	return checkUpdate(s, old, corevalidation.ValidateServiceStatusUpdate)
}

// ServiceClusterIPs validates what families are decided by.
func ServiceClusterIPs(s, old *corev1.Service) field.ErrorList {
	if old == nil {
		return check(s, func(in *core.Service) field.ErrorList {
			return corevalidation.ValidateServiceClusterIPsRelatedFields(in, nil)
		})
	}
	return checkUpdate(s, old, corevalidation.ValidateServiceClusterIPsRelatedFields)
}

// Endpoints validates new Endpoints.
func Endpoints(e *corev1.Endpoints) field.ErrorList {
	return check(e, corevalidation.ValidateEndpointsCreate)
}

// EndpointsUpdate validates changed Endpoints.
func EndpointsUpdate(e, old *corev1.Endpoints) field.ErrorList {
	return checkUpdate(e, old, corevalidation.ValidateEndpointsUpdate)
}

// EndpointSlice validates a new EndpointSlice.
func EndpointSlice(e *discoveryv1.EndpointSlice) field.ErrorList {
	return check(e, discoveryvalidation.ValidateEndpointSliceCreate)
}

// EndpointSliceUpdate validates a changed EndpointSlice.
func EndpointSliceUpdate(e, old *discoveryv1.EndpointSlice) field.ErrorList {
	return checkUpdate(e, old, func(now, before *discovery.EndpointSlice) field.ErrorList {
		return discoveryvalidation.ValidateEndpointSliceUpdate(now, before)
	})
}

// ServiceAccount validates a ServiceAccount; old is nil for a new one.
func ServiceAccount(s, old *corev1.ServiceAccount) field.ErrorList {
	if old == nil {
		return check(s, corevalidation.ValidateServiceAccount)
	}
	return checkUpdate(s, old, corevalidation.ValidateServiceAccountUpdate)
}

// ServiceWarnings returns what the user is told of a Service.
func ServiceWarnings(s *corev1.Service) []string {
	in, err := toInternal(s)
	if err != nil {
		return nil
	}
	return serviceapi.GetWarningsForService(in.(*core.Service), nil)
}
