package validation

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultServiceCIDR names the ServiceCIDR that the server keeps at its ranges.
const DefaultServiceCIDR = "kubernetes"

// ServiceCIDR holds ranges to what the allocator can number.
func ServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	var errs field.ErrorList
	for i, value := range c.Spec.CIDRs {
		at := specPath.Child("cidrs").Index(i)
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			continue // Kubernetes' own rules say so
		}
		switch hostBits := prefix.Addr().BitLen() - prefix.Bits(); {
		case hostBits < 2:
			errs = append(errs, field.Invalid(at, value, "is too small: at least four addresses are needed"))
		case hostBits > 63:
			errs = append(errs, field.Invalid(at, value, "is too large: /65 is the largest IPv6 range"))
		}
	}
	return errs
}
