package garbage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
)

const (
	// rediscover is how often kinds that came or went are looked for.
	rediscover = 30 * time.Second
	// definitionDelay is how long after a change of a CustomResourceDefinition
	// they are looked for too: the server takes a moment to serve the kind, and
	// definitions come in numbers.
	definitionDelay = 300 * time.Millisecond
)

// definitions are the objects that make kinds come and go.
var definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// monitor fills the graph with the objects of one kind. It is the store that a
// reflector writes to, and keeps nothing itself.
type monitor struct {
	kind   schema.GroupVersionResource
	graph  *graph
	look   func(types.UID)
	cancel context.CancelFunc
	// changed, if set, is called with each change of an object.
	changed func()
	synced  atomic.Bool
}

var _ cache.TransformingStore = (*monitor)(nil)

// watchKinds keeps one monitor running for each kind that the server has. If
// kinds came or went, what is known of their names is asked for anew.
func (c *Controller) watchKinds(ctx context.Context) error {
	kinds, err := c.kinds()
	came := false
	for kind := range kinds {
		if c.monitors[kind] == nil {
			came = true
			c.monitors[kind] = c.startMonitor(ctx, kind)
		}
	}
	if came {
		// Of owners of a kind that wasn't served nothing could be said before.
		c.mapper.Reset()
		for _, uid := range c.graph.inDoubt() {
			c.queue.Add(uid)
		}
	}
	if err != nil {
		// A group that did not answer is no reason to forget its objects.
		return fmt.Errorf("discover resources: %w", err)
	}
	for kind, m := range c.monitors {
		if kinds[kind] {
			continue
		}
		c.mapper.Reset()
		m.cancel()
		delete(c.monitors, kind)
		if err := m.Replace(nil, ""); err != nil {
			return err
		}
	}
	return nil
}

// kinds returns the resources that can have owners or be some: those that can
// be listed, watched and deleted. Events are left out; they are many, and
// neither owned nor owners.
func (c *Controller) kinds() (map[schema.GroupVersionResource]bool, error) {
	lists, err := discovery.ServerPreferredResources(c.discovery)
	kinds := map[schema.GroupVersionResource]bool{}
	for _, list := range lists {
		version, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			return kinds, fmt.Errorf("parse group version %q: %w", list.GroupVersion, parseErr)
		}
		for _, r := range list.APIResources {
			if r.Name == "events" || strings.Contains(r.Name, "/") {
				continue
			}
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") && slices.Contains(r.Verbs, "delete") {
				kinds[version.WithResource(r.Name)] = true
			}
		}
	}
	return kinds, err
}

func (c *Controller) startMonitor(ctx context.Context, kind schema.GroupVersionResource) *monitor {
	m := &monitor{kind: kind, graph: c.graph, look: c.queue.Add}
	if kind.GroupResource() == definitions {
		m.changed = c.definitionChanged
	}
	ctx, m.cancel = context.WithCancel(ctx)
	client := c.objects.Resource(kind)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, options)
		},
	}, c.objects)
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, m, cache.ReflectorOptions{
		Name: "garbage collector: " + kind.Resource,
	})
	c.running.Go(func() { reflector.RunWithContext(ctx) })
	return m
}

// Add implements cache.Store.
func (m *monitor) Add(obj any) error { return m.Update(obj) }

// Update implements cache.Store.
func (m *monitor) Update(obj any) error {
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("store metadata of %s: got %T", m.kind.Resource, obj)
	}
	m.lookAt(m.graph.set(newObject(m.kind, meta)))
	m.notify()
	return nil
}

// Delete implements cache.Store.
func (m *monitor) Delete(obj any) error {
	meta, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("remove metadata of %s: got %T", m.kind.Resource, obj)
	}
	m.lookAt(m.graph.remove(meta.UID, true))
	m.notify()
	return nil
}

func (m *monitor) notify() {
	if m.changed != nil {
		m.changed()
	}
}

// Replace implements cache.Store: it comes with the first list, and when the
// watch had to start anew.
func (m *monitor) Replace(list []any, _ string) error {
	present := map[types.UID]bool{}
	for _, obj := range list {
		if err := m.Update(obj); err != nil {
			return err
		}
		if meta, ok := obj.(*metav1.PartialObjectMetadata); ok {
			present[meta.UID] = true
		}
	}
	for _, uid := range m.graph.uids(m.kind) {
		if !present[uid] {
			m.lookAt(m.graph.remove(uid, false))
		}
	}
	m.synced.Store(true)
	return nil
}

// Resync implements cache.Store; there is nothing to do.
func (m *monitor) Resync() error { return nil }

// Transformer implements cache.TransformingStore: it drops at once what the
// graph does not keep.
func (m *monitor) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if meta, ok := obj.(*metav1.PartialObjectMetadata); ok {
			meta.Labels, meta.Annotations, meta.ManagedFields = nil, nil, nil
		}
		return obj, nil
	}
}

func (m *monitor) lookAt(uids []types.UID) {
	for _, uid := range uids {
		m.look(uid)
	}
}
