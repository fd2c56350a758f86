// Package validation refuses invalid objects, with Kubernetes' field paths and
// messages, so that people and tools get the errors that they know. The sources are the Kubernetes API reference and its KEPs.
package validation

import (
	"net/netip"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	metadataPath = field.NewPath("metadata")
	specPath     = field.NewPath("spec")
	statusPath   = field.NewPath("status")
)

func metadata(o metav1.Object, namespaced bool, name apivalidation.ValidateNameFunc) field.ErrorList {
	return apivalidation.ValidateObjectMetaAccessor(o, namespaced, name, metadataPath)
}

// invalid turns the messages of a format check into errors.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// oneOf requires one of a few values.
func oneOf[T ~string](path *field.Path, value T, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	for _, s := range supported {
		if value == s {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

func portNumber(path *field.Path, port int32) field.ErrorList {
	return invalid(path, port, validation.IsValidPortNum(int(port)))
}

func portNumberOrName(path *field.Path, port intstr.IntOrString) field.ErrorList {
	if port.Type == intstr.Int {
		return portNumber(path, port.IntVal)
	}
	return invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
}

func dnsLabel(path *field.Path, value string) field.ErrorList {
	return invalid(path, value, validation.IsDNS1123Label(value))
}

func dnsSubdomain(path *field.Path, value string) field.ErrorList {
	return invalid(path, value, validation.IsDNS1123Subdomain(value))
}

func qualifiedName(path *field.Path, value string) field.ErrorList {
	return invalid(path, value, validation.IsQualifiedName(value))
}

// ip requires an address without zone.
func ip(path *field.Path, value string) (netip.Addr, field.ErrorList) {
	addr, err := netip.ParseAddr(value)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}, field.ErrorList{field.Invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")}
	}
	return addr, nil
}

func cidr(path *field.Path, value string) field.ErrorList {
	if _, err := netip.ParsePrefix(value); err != nil {
		return field.ErrorList{field.Invalid(path, value, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")}
	}
	return nil
}

// ordinaryIP refuses addresses to which traffic can't be sent from another
// machine.
func ordinaryIP(path *field.Path, value string) field.ErrorList {
	addr, errs := ip(path, value)
	switch {
	case len(errs) > 0:
		return errs
	case addr.IsUnspecified():
		return field.ErrorList{field.Invalid(path, value, "may not be unspecified ("+value+")")}
	case addr.IsLoopback():
		return field.ErrorList{field.Invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")}
	case addr.IsLinkLocalUnicast():
		return field.ErrorList{field.Invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")}
	case addr.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")}
	case addr.IsMulticast():
		return field.ErrorList{field.Invalid(path, value, "may not be in the multicast range (224.0.0.0/4, ff00::/8)")}
	}
	return nil
}

// immutable refuses a change of a field.
func immutable(path *field.Path, value, old any) field.ErrorList {
	return apivalidation.ValidateImmutableField(value, old, path)
}
