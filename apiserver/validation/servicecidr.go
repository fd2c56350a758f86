package validation

import (
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultServiceCIDR names the ServiceCIDR that the server keeps at its ranges.
const DefaultServiceCIDR = "kubernetes"

// ServiceCIDR validates a ServiceCIDR. There is the default one only: the
// server's ranges are in its command line.
func ServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	errs := metadata(c, false, apivalidation.NameIsDNSSubdomain)
	if c.Name != DefaultServiceCIDR {
		errs = append(errs, field.Forbidden(metadataPath.Child("name"), "further ranges of cluster IPs aren't supported: start the server with another --service-cidr"))
	}
	path := specPath.Child("cidrs")
	switch {
	case len(c.Spec.CIDRs) == 0:
		return append(errs, field.Required(path, "at least one CIDR required"))
	case len(c.Spec.CIDRs) > 2:
		return append(errs, field.Invalid(path, c.Spec.CIDRs, "may only hold up to 2 values"))
	}
	for i, value := range c.Spec.CIDRs {
		errs = append(errs, cidr(path.Index(i), value)...)
	}
	return errs
}

// ServiceCIDRUpdate keeps the ranges.
func ServiceCIDRUpdate(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	return immutable(specPath.Child("cidrs"), c.Spec.CIDRs, old.Spec.CIDRs)
}
