package kube

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// lastApplied is kubectl's copy of the whole manifest, often the largest part
// of an object.
const lastApplied = corev1.LastAppliedConfigAnnotation

// Trim removes from an object what nobody here reads: managed fields and
// kubectl's copy of the manifest. It changes the object in place.
func Trim(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("trim %T: %w", obj, err)
	}
	m.SetManagedFields(nil)
	if annotations := m.GetAnnotations(); annotations[lastApplied] != "" {
		delete(annotations, lastApplied)
	}
	return obj, nil
}

// expectedType is a new object of T's type, which a reflector compares with.
func expectedType[T runtime.Object](t T) any {
	return reflect.New(reflect.TypeOf(t).Elem()).Interface()
}
