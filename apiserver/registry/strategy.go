package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy turns a kind's description into the generic registry's terms.
type strategy[T any, O object[T]] struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind *kind[T, O]
}

func (s strategy[T, O]) NamespaceScoped() bool { return !s.kind.clusterScoped }

func (s strategy[T, O]) AllowCreateOnUpdate(context.Context) bool { return s.kind.createOnUpdate }

func (s strategy[T, O]) AllowUnconditionalUpdate(context.Context) bool { return true }

func (s strategy[T, O]) Canonicalize(runtime.Object) {}

func (s strategy[T, O]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	o := obj.(O)
	if s.kind.generation != nil {
		o.SetGeneration(1)
	}
	if s.kind.prepareCreate != nil {
		s.kind.prepareCreate(o)
	}
}

func (s strategy[T, O]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	if s.kind.validate == nil {
		return nil
	}
	return s.kind.validate(obj.(O))
}

func (s strategy[T, O]) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	warnings := s.WarningsOnUpdate(ctx, obj, nil)
	if s.kind.idle != "" {
		warnings = append(warnings, s.kind.idle)
	}
	return warnings
}

func (s strategy[T, O]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	o, before := obj.(O), old.(O)
	if s.kind.prepareUpdate != nil {
		s.kind.prepareUpdate(o, before)
	}
	if s.kind.generation != nil && s.kind.generation(o, before) {
		o.SetGeneration(before.GetGeneration() + 1)
	}
}

func (s strategy[T, O]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	var errs field.ErrorList
	if s.kind.validate != nil {
		errs = s.kind.validate(obj.(O))
	}
	if s.kind.validateUpdate != nil {
		errs = append(errs, s.kind.validateUpdate(obj.(O), old.(O))...)
	}
	return errs
}

func (s strategy[T, O]) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	if s.kind.warnings == nil {
		return nil
	}
	return s.kind.warnings(obj.(O))
}

// GetResetFields names what prepareCreate and prepareUpdate discard, so that
// server-side apply doesn't make its user the owner of it.
func (s strategy[T, O]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.kind.status == nil {
		return nil
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(s.kind.version.String()): fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	}
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

func (s statusStrategy[T, O]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.kind.status.keep(obj.(O), old.(O))
}

func (s statusStrategy[T, O]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	if s.kind.status.validateUpdate == nil {
		return nil
	}
	return s.kind.status.validateUpdate(obj.(O), old.(O))
}

func (s statusStrategy[T, O]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s statusStrategy[T, O]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(s.kind.version.String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec")),
	}
}
