package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Object is an object of the API.
type Object interface {
	runtime.Object
	metav1.Object
}

// Sink takes in the objects of one kind. Calls come from one goroutine at a
// time. The sink must copy what it keeps of an object.
type Sink[T runtime.Object] struct {
	Set    func(T)
	Delete func(types.NamespacedName)
	// Synced is called after each complete list has been taken in, and so at
	// least once.
	Synced func()
}

// Source names what to watch.
type Source struct {
	Client   rest.Interface // of the group and version
	Resource string
	// Namespace whose objects to watch; "" is all of them.
	Namespace string
	Labels    labels.Selector // nil selects all
	Fields    fields.Selector // nil selects all
	// Lists, if not nil, is asked instead of Client. It heeds Namespace and the
	// selectors itself. Typed is the client set that it asks.
	Lists *cache.ListWatch
	Typed any
	// Asked, if not nil, is told after each list, and each watch that is opened, how
	// it went: nil, or why the API refused it. It may be called from any goroutine.
	Asked func(error)
}

// Watch follows the objects of a source and hands each on to the sink, until
// ctx is done. It lists again whenever the watch cannot be continued and finds
// out what was deleted meanwhile. Failures are retried with a growing pause;
// the sink keeps what it has.
func Watch[T runtime.Object](ctx context.Context, source Source, sink Sink[T]) {
	var expected T
	store := &passThrough[T]{sink: sink, keys: map[types.NamespacedName]struct{}{}}
	reflector := cache.NewReflectorWithOptions(source.lister(), expectedType(expected), store, cache.ReflectorOptions{
		Name:    source.Resource,
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 7, Cap: 15 * time.Second},
	})
	reflector.RunWithContext(ctx)
}

// lister is how a reflector asks.
func (s *Source) lister() cache.ListerWatcher {
	lw := s.Lists
	if lw == nil {
		lw = cache.NewFilteredListWatchFromClient(s.Client, s.Resource, s.Namespace, func(o *metav1.ListOptions) {
			if s.Labels != nil {
				o.LabelSelector = s.Labels.String()
			}
			if s.Fields != nil {
				o.FieldSelector = s.Fields.String()
			}
		})
	}
	if s.Asked != nil {
		observe(lw, s.Asked)
	}
	if s.Typed != nil {
		return cache.ToListWatcherWithWatchListSemantics(lw, s.Typed)
	}
	return lw
}

// observe has asked told how each list and watch went.
func observe(lw *cache.ListWatch, asked func(error)) {
	list, open := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		objects, err := list(ctx, o)
		asked(err)
		return objects, err
	}
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		events, err := open(ctx, o)
		if !listFollows(o, err) {
			asked(err)
		}
		return events, err
	}
}

// listFollows reports whether a reflector lists at once, since the API refused a
// watch that begins with all objects (KEP-3157). A server without that feature
// refuses every such watch, so only the list says whether the kind can be read.
func listFollows(o metav1.ListOptions, err error) bool {
	var status apierrors.APIStatus
	return o.SendInitialEvents != nil && *o.SendInitialEvents && errors.As(err, &status) &&
		!apierrors.IsTooManyRequests(err) && !apierrors.IsInternalError(err)
}

// passThrough is a reflector's store that remembers names only.
type passThrough[T runtime.Object] struct {
	mu   sync.Mutex
	sink Sink[T]
	keys map[types.NamespacedName]struct{} // whom the sink knows
}

func (s *passThrough[T]) Add(obj any) error {
	object, key, err := identify[T](obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = struct{}{}
	s.sink.Set(object)
	return nil
}

func (s *passThrough[T]) Update(obj any) error { return s.Add(obj) }

func (s *passThrough[T]) Delete(obj any) error {
	_, key, err := identify[T](obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
	s.sink.Delete(key)
	return nil
}

// Replace takes in a complete list: what is not in it is gone. Objects that
// streamed in are there by name, since the sink has them already.
func (s *passThrough[T]) Replace(list []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make(map[types.NamespacedName]struct{}, len(list))
	for _, obj := range list {
		name, done := obj.(*streamed)
		if !done {
			object, key, err := identify[T](obj)
			if err != nil {
				return err
			}
			s.sink.Set(object)
			name = nameOnly(key)
		}
		key := types.NamespacedName{Namespace: name.namespace, Name: name.name}
		keys[key], s.keys[key] = struct{}{}, struct{}{} // known, also where the list fails further on
	}
	for key := range s.keys {
		if _, listed := keys[key]; !listed {
			s.sink.Delete(key)
		}
	}
	s.keys = keys
	s.sink.Synced()
	return nil
}

func (s *passThrough[T]) Resync() error { return nil }

// streamed is what a reflector keeps of an object that the sink has got: its name. All else
// that may be asked of it is empty.
type streamed struct {
	metav1.Object
	namespace, name string
}

func (s *streamed) GetNamespace() string { return s.namespace }
func (s *streamed) GetName() string      { return s.name }

func nameOnly(key types.NamespacedName) *streamed {
	return &streamed{Object: &noMetadata, namespace: key.Namespace, name: key.Name}
}

var noMetadata metav1.ObjectMeta

// Transformer hands objects to the sink while a list streams in, and leaves
// their names to the list: a large one is never held whole. A reflector asks for
// it there only.
func (s *passThrough[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if _, done := obj.(*streamed); done {
			return obj, nil
		}
		if err := s.Add(obj); err != nil {
			return nil, err
		}
		_, key, err := identify[T](obj)
		return nameOnly(key), err
	}
}

// identify names an object and trims it.
func identify[T runtime.Object](obj any) (object T, key types.NamespacedName, err error) {
	object, ok := obj.(T)
	if !ok {
		return object, key, fmt.Errorf("take in object: got a %T, want a %T", obj, object)
	}
	if _, err := Trim(obj); err != nil {
		return object, key, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return object, key, fmt.Errorf("take in %T: %w", obj, err)
	}
	return object, types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}, nil
}
