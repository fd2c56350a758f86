package validation

import (
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultServiceCIDR names the ServiceCIDR that the server keeps at its ranges.
const DefaultServiceCIDR = "kubernetes"

// ServiceCIDR validates a ServiceCIDR.
func ServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	errs := metadata(c, false, apivalidation.NameIsDNSSubdomain)
	path := specPath.Child("cidrs")
	switch {
	case len(c.Spec.CIDRs) == 0:
		return append(errs, field.Required(path, "at least one CIDR required"))
	case len(c.Spec.CIDRs) > 2:
		return append(errs, field.Invalid(path, c.Spec.CIDRs, "may only hold up to 2 values"))
	}
	var families []bool
	for i, value := range c.Spec.CIDRs {
		at := path.Index(i)
		if bad := cidr(at, value); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			errs = append(errs, field.Invalid(at, value, err.Error()))
			continue
		}
		errs = append(errs, serviceRange(at, value, prefix)...)
		families = append(families, prefix.Addr().Is4())
	}
	if len(families) == 2 && families[0] == families[1] {
		errs = append(errs, field.Invalid(path, c.Spec.CIDRs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/96"))
	}
	return errs
}

// serviceRange holds a range to what the allocator can number.
func serviceRange(path *field.Path, value string, prefix netip.Prefix) field.ErrorList {
	hostBits := prefix.Addr().BitLen() - prefix.Bits()
	switch {
	case prefix != prefix.Masked():
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be the network's own address: %s", prefix.Masked()))}
	case hostBits < 2:
		return field.ErrorList{field.Invalid(path, value, "is too small: at least four addresses are needed")}
	case hostBits > 63:
		return field.ErrorList{field.Invalid(path, value, "is too large: /65 is the largest IPv6 range")}
	}
	return nil
}

// ServiceCIDRUpdate keeps the ranges; one of the other family may be added.
func ServiceCIDRUpdate(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	now, before := c.Spec.CIDRs, old.Spec.CIDRs
	if len(before) == 1 && len(now) == 2 {
		now = slices.Clone(now[:1])
	}
	return immutable(specPath.Child("cidrs"), now, before)
}

// IPAddress validates an IPAddress: its name is the address, as RFC 5952 spells it.
func IPAddress(a *networkingv1.IPAddress) field.ErrorList {
	errs := metadata(a, false, canonicalAddress)
	path := specPath.Child("parentRef")
	if a.Spec.ParentRef == nil {
		return append(errs, field.Required(path, ""))
	}
	if a.Spec.ParentRef.Resource == "" {
		errs = append(errs, field.Required(path.Child("resource"), ""))
	}
	if a.Spec.ParentRef.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}

func canonicalAddress(name string, _ bool) []string {
	addr, err := netip.ParseAddr(name)
	switch {
	case err != nil || addr.Zone() != "":
		return []string{"must be a valid IP address, such as 10.9.8.7 or 2001:db8::ffff"}
	case addr.Unmap().String() != name:
		return []string{fmt.Sprintf("must be in canonical form (%q)", addr.Unmap())}
	}
	return nil
}

// IPAddressUpdate keeps what an address belongs to.
func IPAddressUpdate(a, old *networkingv1.IPAddress) field.ErrorList {
	return immutable(specPath.Child("parentRef"), a.Spec.ParentRef, old.Spec.ParentRef)
}
