// Package registry says how each kind of object is created, updated, deleted,
// selected and listed, and puts that together with storage.
package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairway-net/fairway/apiserver/upstream"
)

// object is a pointer to an API type.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// kind describes one kind of object. What is nil takes the ordinary course.
type kind[T any, O object[T]] struct {
	version    schema.GroupVersion
	resource   string
	singular   string
	shortNames []string
	categories []string
	list       func() runtime.Object

	// rules are Kubernetes' own, to which the hooks below add. A kind without says itself
	// where its objects are.
	rules          *upstream.Rules
	createOnUpdate bool

	// prepareCreate clears what only the system may set.
	prepareCreate func(O)
	// prepareUpdate carries over what this update may not change.
	prepareUpdate func(obj, old O)
	// validate adds to the rules; old is nil for a new object.
	validate func(obj, old O) field.ErrorList
	warnings func(O) []string
	// idle, if not "", is what who creates an object is told: nothing acts on it.
	idle string
	// generation, if set, says whether an update changed what the user
	// asked for; it is then counted in metadata.generation.
	generation func(obj, old O) bool

	// status makes a kind whose rules have none have a status subresource.
	status *status[T, O]

	fields   func(O) fields.Set
	indexed  map[string]func(O) string
	graceful func(ctx context.Context, obj O, options *metav1.DeleteOptions) bool
	// returnsDeleted answers a deletion with the object, as Kubernetes does for some kinds.
	returnsDeleted bool
	ttl            uint64
	table          rest.TableConvertor
}

// status describes updates through the status subresource.
type status[T any, O object[T]] struct {
	// keep carries everything but the status over from the old object.
	keep           func(obj, old O)
	validateUpdate func(obj, old O) field.ErrorList
}

func (k *kind[T, O]) groupResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: k.version.Group, Resource: name}
}

// isNamespaced says whether objects of the kind are in namespaces.
func (k *kind[T, O]) isNamespaced() bool { return k.rules == nil || k.rules.IsNamespaced() }

func (k *kind[T, O]) hasStatus() bool { return k.status != nil || k.rules.Status() != nil }
