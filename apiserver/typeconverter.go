package apiserver

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/fairway-net/fairway/internal/tuning"
)

// typeConverter hands objects to structured-merge-diff, which finds out from
// them who manages which fields. The library has it walk over each object first
// to see whether it fits its schema; ours are Go's own types, from which the
// schemas were made, so that there is nothing to see. What a user sends to
// server-side apply is checked as ever: it is no such type.
type typeConverter struct {
	managedfields.TypeConverter
	kinds sync.Map // schema.GroupVersionKind to kindType
}

type kindType struct {
	schema *smdschema.Schema
	ref    smdschema.TypeRef
}

// newTypeConverter knows the kinds of which there are samples.
func newTypeConverter(config *common.OpenAPIV3Config, samples []runtime.Object) (*typeConverter, error) {
	names := make([]string, len(samples))
	for i, sample := range samples {
		names[i] = util.GetCanonicalTypeName(sample)
	}
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		return nil, fmt.Errorf("build OpenAPI schemas: %w", err)
	}
	library, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("build types from OpenAPI schemas: %w", err)
	}
	return &typeConverter{TypeConverter: library}, nil
}

// forUpdate are the options with which the library asks for objects that are
// stored or about to be.
var forUpdate = []typed.ValidationOptions{typed.AllowDuplicates}

// ObjectToTyped implements managedfields.TypeConverter.
func (c *typeConverter) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if _, ok := obj.(runtime.Unstructured); ok || !slices.Equal(options, forUpdate) {
		return c.TypeConverter.ObjectToTyped(obj, options...)
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	known, ok := c.kinds.Load(gvk)
	if !ok {
		t, err := c.TypeConverter.ObjectToTyped(obj, options...)
		if err == nil {
			c.kinds.Store(gvk, kindType{t.Schema(), t.TypeRef()})
		}
		return t, err
	}
	v, err := value.NewValueReflect(obj)
	if err != nil {
		return nil, fmt.Errorf("take %s apart: %w", gvk, err)
	}
	kind := known.(kindType)
	return typed.AsTypedUnvalidated(v, kind.schema, kind.ref), nil //nolint:staticcheck // validation is what this leaves out: see typeConverter
}

// creater makes the empty object that a new one is compared with: the first
// thing that the goroutine does in which the library creates.
type creater struct{ runtime.ObjectCreater }

func (c creater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	tuning.GrowStack()
	return c.ObjectCreater.New(kind)
}
