package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Check looks at a write with the eyes of the user who asks for it; old is nil
// for a new object. It runs after defaulting and before the object is stored.
type Check func(ctx context.Context, obj, old runtime.Object) error

// checked serves a kind whose writes depend on who writes.
type checked struct {
	*REST
	check Check
}

// Create implements rest.Creater.
func (c *checked) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := c.check(ctx, obj, nil); err != nil {
		return nil, err
	}
	return c.REST.Create(ctx, obj, validate, options)
}

// Update implements rest.Updater.
func (c *checked) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return c.REST.Update(ctx, name, checkedInfo(info, c.check), create, update, forceCreate, options)
}

func checkedInfo(info rest.UpdatedObjectInfo, check Check) rest.UpdatedObjectInfo {
	return rest.WrapUpdatedObjectInfo(info, func(ctx context.Context, obj, old runtime.Object) (runtime.Object, error) {
		// A write that may create begins with an object without a version.
		if m, ok := old.(metav1.Object); ok && m.GetResourceVersion() == "" {
			old = nil
		}
		if err := check(ctx, obj, old); err != nil {
			return nil, err
		}
		return obj, nil
	})
}

// checkedStatus serves a subresource whose writes depend on who writes.
type checkedStatus struct {
	*statusREST
	check Check
}

func newCheckedStatus(store *genericregistry.Store, strategy rest.RESTUpdateStrategy, check Check) *checkedStatus {
	own := *store
	own.UpdateStrategy = strategy
	return &checkedStatus{statusREST: &statusREST{store: &own}, check: check}
}

// Update implements rest.Updater.
func (c *checkedStatus) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return c.statusREST.Update(ctx, name, checkedInfo(info, c.check), create, update, forceCreate, options)
}
