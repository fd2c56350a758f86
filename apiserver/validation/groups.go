package validation

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Lease validates a Lease.
func Lease(l *coordinationv1.Lease) field.ErrorList {
	errs := metadata(l, true, apivalidation.NameIsDNSSubdomain)
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s <= 0 {
		errs = append(errs, field.Invalid(specPath.Child("leaseDurationSeconds"), *s, "must be greater than 0"))
	}
	if n := l.Spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(specPath.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	return errs
}

// IngressClass validates an IngressClass.
func IngressClass(c *networkingv1.IngressClass) field.ErrorList {
	errs := metadata(c, false, apivalidation.NameIsDNSSubdomain)
	controller := specPath.Child("controller")
	if len(c.Spec.Controller) > 250 {
		errs = append(errs, field.TooLong(controller, "", 250))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(controller, c.Spec.Controller)...)
	return append(errs, classParameters(specPath.Child("parameters"), c.Spec.Parameters)...)
}

// classParameters validates the reference to an object with a class' parameters.
func classParameters(path *field.Path, p *networkingv1.IngressClassParametersReference) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	if p.APIGroup != nil {
		errs = append(errs, invalid(path.Child("apiGroup"), *p.APIGroup, validation.IsDNS1123Subdomain(*p.APIGroup))...)
	}
	for _, named := range []struct{ field, value string }{{"kind", p.Kind}, {"name", p.Name}} {
		if named.value == "" {
			errs = append(errs, field.Required(path.Child(named.field), ""))
			continue
		}
		errs = append(errs, invalid(path.Child(named.field), named.value, content.IsPathSegmentName(named.value))...)
	}
	if p.Scope == nil {
		return append(errs, field.Required(path.Child("scope"), ""))
	}
	namespace := path.Child("namespace")
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(namespace, "`parameters.scope` is set to 'Cluster'"))
		}
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			return append(errs, field.Required(namespace, "`parameters.scope` is set to 'Namespace'"))
		}
		errs = append(errs, invalid(namespace, *p.Namespace, validation.IsDNS1123Label(*p.Namespace))...)
	default:
		errs = append(errs, oneOf(path.Child("scope"), *p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)...)
	}
	return errs
}

// IngressClassUpdate validates a changed IngressClass.
func IngressClassUpdate(c, old *networkingv1.IngressClass) field.ErrorList {
	return immutable(specPath.Child("controller"), c.Spec.Controller, old.Spec.Controller)
}

// Ingress validates an Ingress.
func Ingress(i *networkingv1.Ingress) field.ErrorList {
	errs := metadata(i, true, apivalidation.NameIsDNSSubdomain)
	spec := &i.Spec
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(specPath, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, ingressBackend(specPath.Child("defaultBackend"), spec.DefaultBackend)...)
	}
	if c := spec.IngressClassName; c != nil {
		errs = append(errs, dnsSubdomain(specPath.Child("ingressClassName"), *c)...)
	}
	for n, rule := range spec.Rules {
		path := specPath.Child("rules").Index(n)
		errs = append(errs, ingressHost(path.Child("host"), rule.Host)...)
		if rule.HTTP != nil {
			errs = append(errs, ingressPaths(path.Child("http", "paths"), rule.HTTP.Paths)...)
		}
	}
	for n, tls := range spec.TLS {
		for m, host := range tls.Hosts {
			errs = append(errs, ingressHost(specPath.Child("tls").Index(n).Child("hosts").Index(m), host)...)
		}
	}
	return errs
}

func ingressHost(path *field.Path, host string) field.ErrorList {
	if host == "" {
		return nil
	}
	if _, bad := ip(path, host); len(bad) == 0 {
		return field.ErrorList{field.Invalid(path, host, "must be a DNS name, not an IP address")}
	}
	if strings.Contains(host, "*") {
		return invalid(path, host, validation.IsWildcardDNS1123Subdomain(host))
	}
	return dnsSubdomain(path, host)
}

func ingressPaths(path *field.Path, paths []networkingv1.HTTPIngressPath) field.ErrorList {
	if len(paths) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for n, p := range paths {
		at := path.Index(n)
		if p.PathType == nil {
			errs = append(errs, field.Required(at.Child("pathType"), "pathType must be specified"))
		} else {
			errs = append(errs, oneOf(at.Child("pathType"), *p.PathType, networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)...)
			if *p.PathType != networkingv1.PathTypeImplementationSpecific || p.Path != "" {
				errs = append(errs, ingressPath(at.Child("path"), p.Path, *p.PathType)...)
			}
		}
		errs = append(errs, ingressBackend(at.Child("backend"), &p.Backend)...)
	}
	return errs
}

func ingressPath(path *field.Path, value string, typ networkingv1.PathType) field.ErrorList {
	if !strings.HasPrefix(value, "/") {
		return field.ErrorList{field.Invalid(path, value, "must be an absolute path")}
	}
	if typ == networkingv1.PathTypeImplementationSpecific {
		return nil
	}
	var errs field.ErrorList
	for _, sequence := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(value, sequence) {
			errs = append(errs, field.Invalid(path, value, "must not contain '"+sequence+"'"))
		}
	}
	for _, suffix := range []string{"/..", "/."} {
		if strings.HasSuffix(value, suffix) {
			errs = append(errs, field.Invalid(path, value, "cannot end with '"+suffix+"'"))
		}
	}
	return errs
}

func ingressBackend(path *field.Path, b *networkingv1.IngressBackend) field.ErrorList {
	switch {
	case b.Service != nil && b.Resource != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return nil
	case b.Service == nil:
		return field.ErrorList{field.Required(path, "resource or service backend is required")}
	}
	at := path.Child("service")
	var errs field.ErrorList
	if b.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, invalid(at.Child("name"), b.Service.Name, validation.IsDNS1123Label(b.Service.Name))...)
	}
	port := b.Service.Port
	switch {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, invalid(at.Child("port", "name"), port.Name, validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		errs = append(errs, portNumber(at.Child("port", "number"), port.Number)...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

// IngressStatus validates what an Ingress controller reports.
func IngressStatus(i, old *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	if equality.Semantic.DeepEqual(i.Status, old.Status) {
		return nil
	}
	for n, in := range i.Status.LoadBalancer.Ingress {
		path := statusPath.Child("loadBalancer", "ingress").Index(n)
		if in.IP != "" {
			_, bad := ip(path.Child("ip"), in.IP)
			errs = append(errs, bad...)
		}
		if in.Hostname != "" {
			errs = append(errs, dnsSubdomain(path.Child("hostname"), in.Hostname)...)
		}
	}
	return errs
}
