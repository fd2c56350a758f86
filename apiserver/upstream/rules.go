package upstream

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Rules are those of a kind. A nil *Rules has nothing to say.
type Rules struct {
	main   rest.RESTCreateUpdateStrategy
	status rest.RESTUpdateStrategy // nil if the kind has no status of its own
}

// IsNamespaced says whether objects of the kind are in namespaces.
func (r *Rules) IsNamespaced() bool { return r.main.NamespaceScoped() }

// AllowsCreateOnUpdate says whether an update may create an object.
func (r *Rules) AllowsCreateOnUpdate(ctx context.Context) bool {
	return r.main.AllowCreateOnUpdate(ctx)
}

// AllowsUnconditionalUpdate says whether an update may leave the version out.
func (r *Rules) AllowsUnconditionalUpdate(ctx context.Context) bool {
	return r.main.AllowUnconditionalUpdate(ctx)
}

// GarbageCollectionPolicy says what becomes of an object's dependents if its deletion doesn't say.
func (r *Rules) GarbageCollectionPolicy(ctx context.Context) rest.GarbageCollectionPolicy {
	if policy, ok := r.main.(rest.GarbageCollectionDeleteStrategy); ok {
		return policy.DefaultGarbageCollectionPolicy(ctx)
	}
	return rest.DeleteDependents
}

// Status returns the rules of the status subresource, nil if the kind has none.
func (r *Rules) Status() *StatusRules {
	if r == nil || r.status == nil {
		return nil
	}
	return &StatusRules{r.status}
}

// PrepareForCreate clears what only the system may set.
func (r *Rules) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	change(obj, func(in runtime.Object) { r.main.PrepareForCreate(ctx, in) })
}

// PrepareForUpdate carries over what an update may not change.
func (r *Rules) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	prepareForUpdate(ctx, r.main, obj, old)
}

func prepareForUpdate(ctx context.Context, s rest.RESTUpdateStrategy, obj, old runtime.Object) {
	before, err := toInternal(old)
	if err != nil {
		return // validation says so
	}
	change(obj, func(in runtime.Object) { s.PrepareForUpdate(ctx, in, before) })
}

// change changes an object in its internal form. An object that has none stays as it is: validation refuses it.
func change(obj runtime.Object, edit func(in runtime.Object)) {
	in, err := toInternal(obj)
	if err != nil {
		return
	}
	edit(in)
	// Into a new object: what the internal form doesn't have, such as a Secret's stringData, has become something else.
	out := reflect.New(reflect.TypeOf(obj).Elem())
	if err := types().Convert(in, out.Interface(), nil); err != nil {
		panic(err) // it has just been converted the other way
	}
	reflect.ValueOf(obj).Elem().Set(out.Elem())
}

// Validate validates a new object.
func (r *Rules) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	in, err := toInternal(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return r.main.Validate(ctx, in)
}

// ValidateUpdate validates a changed object.
func (r *Rules) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validateUpdate(ctx, r.main, obj, old)
}

func validateUpdate(ctx context.Context, s rest.RESTUpdateStrategy, obj, old runtime.Object) field.ErrorList {
	in, before, err := bothInternal(obj, old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return s.ValidateUpdate(ctx, in, before)
}

// bothInternal converts an object and the one before it, which may be nil.
func bothInternal(obj, old runtime.Object) (in, before runtime.Object, err error) {
	if in, err = toInternal(obj); err != nil || old == nil {
		return in, nil, err
	}
	before, err = toInternal(old)
	return in, before, err
}

// ValidateDeclaratively adds the errors of the rules that stand in the types' own markers.
func (r *Rules) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type) field.ErrorList {
	return validateDeclaratively(ctx, r.main, "", obj, old, errs, op)
}

func validateDeclaratively(ctx context.Context, s any, subresource string, obj, old runtime.Object, errs field.ErrorList, op operation.Type) field.ErrorList {
	markers, ok := s.(rest.DeclarativeValidationStrategy)
	if !ok {
		return errs
	}
	// Requests for other subresources, such as scale, write by these rules too.
	info, ok := apirequest.RequestInfoFrom(ctx)
	if !ok {
		return errs
	}
	own := *info
	own.Subresource = subresource
	if kinds, _, err := types().ObjectKinds(obj); err == nil && !types().Recognizes(schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: kinds[0].Kind}) {
		// Of another object, such as the Pod whose eviction spends a budget.
		own.APIGroup, own.APIVersion = kinds[0].Group, kinds[0].Version
	}
	ctx = apirequest.WithRequestInfo(ctx, &own)
	in, before, err := bothInternal(obj, old)
	if err != nil {
		return append(errs, field.InternalError(nil, err))
	}
	return rest.DeclarativeValidation{Scheme: types()}.ValidateDeclaratively(ctx, in, before, errs, op, markers.DeclarativeValidationConfig(ctx, in, before))
}

// WarningsOnCreate returns what the user is told of a new object.
func (r *Rules) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	in, err := toInternal(obj)
	if err != nil {
		return nil
	}
	return r.main.WarningsOnCreate(ctx, in)
}

// WarningsOnUpdate returns what the user is told of a changed object.
func (r *Rules) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	in, before, err := bothInternal(obj, old)
	if err != nil {
		return nil
	}
	return r.main.WarningsOnUpdate(ctx, in, before)
}

// ResetFields names what preparing discards.
func (r *Rules) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return resetFields(r.main) }

func resetFields(s any) map[fieldpath.APIVersion]*fieldpath.Set {
	if reset, ok := s.(rest.ResetFieldsStrategy); ok {
		return reset.GetResetFields()
	}
	return nil
}

// StatusRules are those of a kind's status subresource.
type StatusRules struct{ strategy rest.RESTUpdateStrategy }

// PrepareForUpdate carries over all but the status.
func (r *StatusRules) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	prepareForUpdate(ctx, r.strategy, obj, old)
}

// ValidateUpdate validates a changed status.
func (r *StatusRules) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validateUpdate(ctx, r.strategy, obj, old)
}

// ValidateDeclaratively adds the errors of the rules that stand in the types' own markers.
func (r *StatusRules) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type) field.ErrorList {
	return validateDeclaratively(ctx, r.strategy, "status", obj, old, errs, op)
}

// ResetFields names what preparing discards.
func (r *StatusRules) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields(r.strategy)
}
