package registry

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/fairway-net/fairway/internal/tuning"
)

// REST serves a kind.
type REST struct {
	*genericregistry.Store
	shortNames []string
	categories []string
}

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.shortNames }

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string { return r.categories }

// Update implements rest.Updater, in a goroutine made for this by the library.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	tuning.GrowStack()
	return r.Store.Update(ctx, name, info, create, update, forceCreate, options)
}

// statusREST serves a kind's status subresource on the same store.
type statusREST struct{ store *genericregistry.Store }

func (r *statusREST) New() runtime.Object { return r.store.New() }

// Destroy leaves the store to its owner.
func (r *statusREST) Destroy() {}

func (r *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

func (r *statusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	tuning.GrowStack()
	return r.store.Update(ctx, name, info, create, update, false, options)
}

func (r *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

func (r *statusREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

// open opens the kind's store. The second result is nil without a status.
func (k *kind[T, O]) open(typer runtime.ObjectTyper, options generic.RESTOptionsGetter) (*REST, *statusREST, error) {
	base := strategy[T, O]{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, kind: k}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return O(new(T)) },
		NewListFunc:               k.list,
		PredicateFunc:             k.predicate,
		DefaultQualifiedResource:  k.groupResource(k.resource),
		SingularQualifiedResource: k.groupResource(k.singular),
		CreateStrategy:            base,
		UpdateStrategy:            base,
		DeleteStrategy:            base,
		ResetFieldsStrategy:       base,
		TableConvertor:            k.table,
		ReturnDeletedObject:       k.returnsDeleted,
	}
	if k.graceful != nil {
		store.DeleteStrategy = gracefulStrategy[T, O]{base}
		store.ReturnDeletedObject = true
	}
	if k.ttl != 0 {
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return k.ttl, nil }
	}
	storeOptions := &generic.StoreOptions{RESTOptions: options, AttrFunc: k.attributes}
	k.addIndexes(storeOptions)
	if err := store.CompleteWithOptions(storeOptions); err != nil {
		return nil, nil, fmt.Errorf("open store of %s: %w", k.resource, err)
	}
	main := &REST{Store: store, shortNames: k.shortNames, categories: k.categories}
	if !k.hasStatus() {
		return main, nil, nil
	}
	statusStore := *store
	statusStore.UpdateStrategy = statusStrategy[T, O]{base}
	statusStore.ResetFieldsStrategy = statusStrategy[T, O]{base}
	return main, &statusREST{store: &statusStore}, nil
}

// addIndexes makes the watch cache keep objects by field value, so that a
// node's watch for its own Pods costs nothing for the others.
func (k *kind[T, O]) addIndexes(options *generic.StoreOptions) {
	if len(k.indexed) == 0 {
		return
	}
	indexers := cache.Indexers{}
	options.TriggerFunc = apistorage.IndexerFuncs{}
	for name, value := range k.indexed {
		options.TriggerFunc[name] = func(obj runtime.Object) string { return value(obj.(O)) }
		indexers[apistorage.FieldIndex(name)] = func(obj any) ([]string, error) { return []string{value(obj.(O))}, nil }
	}
	options.Indexers = &indexers
}

func (k *kind[T, O]) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	o, ok := obj.(O)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not a %s", obj, k.singular)
	}
	set := fields.Set{}
	if k.fields != nil {
		set = k.fields(o)
	}
	set["metadata.name"] = o.GetName()
	if k.isNamespaced() {
		set["metadata.namespace"] = o.GetNamespace()
	}
	return o.GetLabels(), set, nil
}

func (k *kind[T, O]) predicate(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
	p := apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: k.attributes}
	for name := range k.indexed {
		p.IndexFields = append(p.IndexFields, name)
	}
	return p
}
