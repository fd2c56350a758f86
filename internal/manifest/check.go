package manifest

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// strict decodes as an API server does that is asked to be strict: fields that
// the kind doesn't have come back as an error beside the object.
var strict = kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, kjson.SerializerOptions{Strict: true})

// decode makes the typed object of one that was read, with what is wrong about
// it: fields that its kind doesn't have (the object is whole without them), or
// an error that leaves no object. Kinds that nobody here knows stay as they are.
func decode(o runtime.Object) (runtime.Object, []string, error) {
	if !scheme.Scheme.Recognizes(o.GetObjectKind().GroupVersionKind()) {
		return o, nil, nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, nil, fmt.Errorf("write it as JSON: %w", err)
	}
	typed, _, err := strict.Decode(text, nil, nil)
	unknown, ok := runtime.AsStrictDecodingError(err)
	if err != nil && !ok {
		return nil, nil, fmt.Errorf("not what its kind says: %w", err)
	}
	if !ok {
		return typed, nil, nil
	}
	var problems []string
	for _, err := range unknown.Errors() {
		problems = append(problems, err.Error())
	}
	return typed, problems, nil
}

// checkService says which addresses and ports of a Service can't be.
func checkService(s *corev1.Service) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		errs = append(errs, checkIP(spec.Child("clusterIP"), s.Spec.ClusterIP)...)
	}
	for i, ip := range s.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			errs = append(errs, checkIP(spec.Child("clusterIPs").Index(i), ip)...)
		}
	}
	for i, ip := range s.Spec.ExternalIPs {
		errs = append(errs, checkIP(spec.Child("externalIPs").Index(i), ip)...)
	}
	for i, at := range s.Status.LoadBalancer.Ingress {
		if at.IP != "" {
			errs = append(errs, checkIP(field.NewPath("status", "loadBalancer", "ingress").Index(i).Child("ip"), at.IP)...)
		}
	}
	for i, p := range s.Spec.Ports {
		at := spec.Child("ports").Index(i)
		errs = append(errs, checkPort(at.Child("port"), p.Port)...)
		if p.NodePort != 0 {
			errs = append(errs, checkPort(at.Child("nodePort"), p.NodePort)...)
		}
	}
	return errs
}

// checkSlice says which addresses and ports of an EndpointSlice can't be.
func checkSlice(s *discoveryv1.EndpointSlice) (errs field.ErrorList) {
	for i, e := range s.Endpoints {
		for j, ip := range e.Addresses {
			if s.AddressType != discoveryv1.AddressTypeFQDN {
				errs = append(errs, checkIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), ip)...)
			}
		}
	}
	for i, p := range s.Ports {
		if p.Port != nil {
			errs = append(errs, checkPort(field.NewPath("ports").Index(i).Child("port"), *p.Port)...)
		}
	}
	return errs
}

//nolint:staticcheck // Endpoints are still read where somebody writes them
func checkEndpoints(e *corev1.Endpoints) (errs field.ErrorList) {
	for i, subset := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		for j, a := range subset.Addresses {
			errs = append(errs, checkIP(at.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, p := range subset.Ports {
			errs = append(errs, checkPort(at.Child("ports").Index(j).Child("port"), p.Port)...)
		}
	}
	return errs
}

func checkIP(at *field.Path, ip string) field.ErrorList {
	return validation.IsValidIP(at, ip)
}

func checkPort(at *field.Path, port int32) (errs field.ErrorList) {
	for _, text := range validation.IsValidPortNum(int(port)) {
		errs = append(errs, field.Invalid(at, port, text))
	}
	return errs
}
