package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy turns a kind's description into the generic registry's terms.
type strategy[T any, O object[T]] struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind *kind[T, O]
}

func (s strategy[T, O]) NamespaceScoped() bool { return s.kind.isNamespaced() }

func (s strategy[T, O]) AllowCreateOnUpdate(ctx context.Context) bool {
	if s.kind.rules != nil {
		return s.kind.rules.AllowsCreateOnUpdate(ctx)
	}
	return s.kind.createOnUpdate
}

func (s strategy[T, O]) AllowUnconditionalUpdate(ctx context.Context) bool {
	return s.kind.rules == nil || s.kind.rules.AllowsUnconditionalUpdate(ctx)
}

func (s strategy[T, O]) Canonicalize(runtime.Object) {}

func (s strategy[T, O]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	o := obj.(O)
	if s.kind.rules != nil {
		s.kind.rules.PrepareForCreate(ctx, obj)
	}
	if s.kind.generation != nil {
		o.SetGeneration(1)
	}
	if s.kind.prepareCreate != nil {
		s.kind.prepareCreate(o)
	}
}

func (s strategy[T, O]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	var errs field.ErrorList
	if s.kind.rules != nil {
		errs = s.kind.rules.Validate(ctx, obj)
	}
	if s.kind.validate != nil {
		errs = append(errs, s.kind.validate(obj.(O), nil)...)
	}
	return errs
}

// ValidateDeclaratively implements rest.DeclarativeValidationStrategy.
func (s strategy[T, O]) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type, _ rest.DeclarativeValidationConfig) field.ErrorList {
	if s.kind.rules == nil {
		return errs
	}
	return s.kind.rules.ValidateDeclaratively(ctx, obj, old, errs, op)
}

// DeclarativeValidationConfig implements rest.DeclarativeValidationStrategy. The rules have their own.
func (s strategy[T, O]) DeclarativeValidationConfig(context.Context, runtime.Object, runtime.Object) rest.DeclarativeValidationConfig {
	return rest.DeclarativeValidationConfig{}
}

func (s strategy[T, O]) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	var warnings []string
	if s.kind.rules != nil {
		warnings = s.kind.rules.WarningsOnCreate(ctx, obj)
	}
	if s.kind.warnings != nil {
		warnings = append(warnings, s.kind.warnings(obj.(O))...)
	}
	if s.kind.idle != "" {
		warnings = append(warnings, s.kind.idle)
	}
	return warnings
}

func (s strategy[T, O]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	o, before := obj.(O), old.(O)
	if s.kind.rules != nil {
		s.kind.rules.PrepareForUpdate(ctx, obj, old)
	}
	if s.kind.prepareUpdate != nil {
		s.kind.prepareUpdate(o, before)
	}
	if s.kind.generation != nil && s.kind.generation(o, before) {
		o.SetGeneration(before.GetGeneration() + 1)
	}
}

func (s strategy[T, O]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	var errs field.ErrorList
	if s.kind.rules != nil {
		errs = s.kind.rules.ValidateUpdate(ctx, obj, old)
	}
	if s.kind.validate != nil {
		errs = append(errs, s.kind.validate(obj.(O), old.(O))...)
	}
	return errs
}

func (s strategy[T, O]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	var warnings []string
	if s.kind.rules != nil {
		warnings = s.kind.rules.WarningsOnUpdate(ctx, obj, old)
	}
	if s.kind.warnings != nil {
		warnings = append(warnings, s.kind.warnings(obj.(O))...)
	}
	return warnings
}

// GetResetFields names what prepareCreate and prepareUpdate discard, so that
// server-side apply doesn't make its user the owner of it.
func (s strategy[T, O]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.kind.rules != nil {
		return s.kind.rules.ResetFields()
	}
	if s.kind.status == nil {
		return nil
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(s.kind.version.String()): fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	}
}

// DefaultGarbageCollectionPolicy implements rest.GarbageCollectionDeleteStrategy.
func (s strategy[T, O]) DefaultGarbageCollectionPolicy(ctx context.Context) rest.GarbageCollectionPolicy {
	if s.kind.rules == nil {
		return rest.DeleteDependents
	}
	return s.kind.rules.GarbageCollectionPolicy(ctx)
}

// gracefulStrategy is the strategy of a kind whose objects are deleted in two
// steps.
type gracefulStrategy[T any, O object[T]] struct{ strategy[T, O] }

func (s gracefulStrategy[T, O]) CheckGracefulDelete(ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	return s.kind.graceful(ctx, obj.(O), options)
}

// statusStrategy is the strategy of the status subresource.
type statusStrategy[T any, O object[T]] struct{ strategy[T, O] }

func (s statusStrategy[T, O]) AllowCreateOnUpdate(context.Context) bool { return false }

func (s statusStrategy[T, O]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	if rules := s.kind.rules.Status(); rules != nil {
		rules.PrepareForUpdate(ctx, obj, old)
		return
	}
	s.kind.status.keep(obj.(O), old.(O))
}

func (s statusStrategy[T, O]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	if rules := s.kind.rules.Status(); rules != nil {
		return rules.ValidateUpdate(ctx, obj, old)
	}
	if s.kind.status.validateUpdate == nil {
		return nil
	}
	return s.kind.status.validateUpdate(obj.(O), old.(O))
}

func (s statusStrategy[T, O]) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type, _ rest.DeclarativeValidationConfig) field.ErrorList {
	if rules := s.kind.rules.Status(); rules != nil {
		return rules.ValidateDeclaratively(ctx, obj, old, errs, op)
	}
	return errs
}

func (s statusStrategy[T, O]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s statusStrategy[T, O]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if rules := s.kind.rules.Status(); rules != nil {
		return rules.ResetFields()
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(s.kind.version.String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec")),
	}
}
