package registry

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

func namespaces() *kind[corev1.Namespace, *corev1.Namespace] {
	return &kind[corev1.Namespace, *corev1.Namespace]{
		version: corev1.SchemeGroupVersion, resource: "namespaces", singular: "namespace",
		shortNames: []string{"ns"},
		list:       func() runtime.Object { return &corev1.NamespaceList{} },
		rules:      upstream.Namespaces,
		fields: func(n *corev1.Namespace) fields.Set {
			return fields.Set{"status.phase": string(n.Status.Phase)}
		},
		table: tables.Namespaces(),
	}
}

// namespaceStore is what of a store serves Namespaces: all but deleting a
// whole collection.
type namespaceStore interface {
	rest.Storage
	rest.Scoper
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.ResetFieldsStrategy
}

// namespaceREST deletes Namespaces in two steps: first they are terminating,
// and when everything in them has gone and the finalizers are off, they go.
type namespaceREST struct {
	namespaceStore
	store *genericregistry.Store
}

func newNamespaceREST(r *REST, status *statusREST) *namespaceREST {
	r.ShouldDeleteDuringUpdate = finalized
	// A namespace being emptied has its conditions set, which must not end it.
	status.store.ShouldDeleteDuringUpdate = finalized
	return &namespaceREST{namespaceStore: r, store: r.Store}
}

// finalized says whether an update took the last finalizer off a Namespace
// that is being deleted.
func finalized(ctx context.Context, key string, obj, existing runtime.Object) bool {
	return len(obj.(*corev1.Namespace).Spec.Finalizers) == 0 &&
		genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
}

// Delete implements rest.GracefulDeleter.
func (r *namespaceREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	obj, err := r.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	ns := obj.(*corev1.Namespace)
	if ns.DeletionTimestamp != nil {
		if len(ns.Spec.Finalizers) == 0 {
			return r.store.Delete(ctx, name, validate, options)
		}
		return ns, false, nil // it is being emptied
	}
	preconditions := apistorage.Preconditions{}
	if p := options.Preconditions; p != nil {
		preconditions.UID, preconditions.ResourceVersion = p.UID, p.ResourceVersion
	}
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, false, err
	}
	out := r.store.NewFunc()
	err = r.store.Storage.GuaranteedUpdate(ctx, key, out, false, &preconditions,
		apistorage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
			if err := validate(ctx, existing); err != nil {
				return nil, err
			}
			return terminating(existing)
		}), dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		err = storeerr.InterpretUpdateError(err, r.store.DefaultQualifiedResource, name)
		if apierrors.IsNotFound(err) {
			return nil, false, apierrors.NewNotFound(r.store.DefaultQualifiedResource, name)
		}
		return nil, false, err
	}
	return out, false, nil
}

func terminating(obj runtime.Object) (runtime.Object, error) {
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, fmt.Errorf("delete Namespace: stored object is a %T", obj)
	}
	if ns.DeletionTimestamp == nil {
		now := metav1.Now()
		ns.DeletionTimestamp = &now
	}
	ns.Status.Phase = corev1.NamespaceTerminating
	return ns, nil
}

// ConvertToTable implements rest.TableConvertor.
func (r *namespaceREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

// finalizeREST takes finalizers off a Namespace.
type finalizeREST struct{ store *genericregistry.Store }

func newFinalizeREST(r *REST) *finalizeREST {
	store := *r.Store
	store.UpdateStrategy = finalizeStrategy{r.UpdateStrategy}
	store.ShouldDeleteDuringUpdate = finalized
	return &finalizeREST{store: &store}
}

func (r *finalizeREST) New() runtime.Object { return r.store.New() }

// Destroy leaves the store to its owner.
func (r *finalizeREST) Destroy() {}

// Update implements rest.Updater.
func (r *finalizeREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, create, update, false, options)
}

func (r *finalizeREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return nil }

// finalizeStrategy lets the finalizers change and nothing else of the status.
type finalizeStrategy struct{ rest.RESTUpdateStrategy }

func (finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.Namespace).Status = old.(*corev1.Namespace).Status
}

func (finalizeStrategy) ValidateUpdate(ctx context.Context, obj, _ runtime.Object) field.ErrorList {
	return upstream.Namespaces.Validate(ctx, obj)
}
