package registry

import (
	"context"
	"errors"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
	"github.com/fairway-net/fairway/apiserver/validation"
)

func serviceCIDRs() *kind[networkingv1.ServiceCIDR, *networkingv1.ServiceCIDR] {
	return &kind[networkingv1.ServiceCIDR, *networkingv1.ServiceCIDR]{
		version: networkingv1.SchemeGroupVersion, resource: "servicecidrs", singular: "servicecidr",
		list:     func() runtime.Object { return &networkingv1.ServiceCIDRList{} },
		rules:    upstream.ServiceCIDRs,
		validate: func(c, _ *networkingv1.ServiceCIDR) field.ErrorList { return validation.ServiceCIDR(c) },
		table:    tables.ServiceCIDRs(),
	}
}

func ipAddresses() *kind[networkingv1.IPAddress, *networkingv1.IPAddress] {
	return &kind[networkingv1.IPAddress, *networkingv1.IPAddress]{
		version: networkingv1.SchemeGroupVersion, resource: "ipaddresses", singular: "ipaddress",
		shortNames: []string{"ip"},
		list:       func() runtime.Object { return &networkingv1.IPAddressList{} },
		rules:      upstream.IPAddresses,
		table:      tables.IPAddresses(),
	}
}

// serviceCIDRREST keeps the ServiceCIDR of the server's own ranges from being deleted
// by anybody else.
type serviceCIDRREST struct{ *REST }

// Delete implements rest.GracefulDeleter.
func (r *serviceCIDRREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.REST.Delete(ctx, name, keepDefault(validate), options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *serviceCIDRREST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *internalversion.ListOptions) (runtime.Object, error) {
	return r.REST.DeleteCollection(ctx, keepDefault(validate), options, list)
}

func keepDefault(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		c, ok := obj.(*networkingv1.ServiceCIDR)
		who, known := apirequest.UserFrom(ctx)
		if ok && c.Name == validation.DefaultServiceCIDR && (!known || who.GetName() != user.APIServerUser) {
			return apierrors.NewForbidden(networkingv1.Resource("servicecidrs"), c.Name,
				errors.New("it holds the server's own ranges: start the server with another --service-cidr, which replaces it"))
		}
		if validate == nil {
			return nil
		}
		return validate(ctx, obj)
	}
}
