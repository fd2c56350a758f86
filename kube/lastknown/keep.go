package lastknown

import (
	"context"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/kube"
)

// silenceTimeout is how long the API may be silent before the saved objects are taken.
const silenceTimeout = 3 * time.Second

// object is an API object as the published types are.
type object interface {
	runtime.Object
	metav1.Object
	encoder
	Unmarshal([]byte) error
}

// Run writes changes to the file until ctx is done.
func (s *Store) Run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(flushPeriod)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.flush()
		if err != nil && !failed {
			log.Warn("the last known state can't be saved for the next start", "error", err)
		}
		failed = err != nil
	}
}

// keeper stands between a watch and its sink.
type keeper[T object] struct {
	store    *Store
	resource string
	sink     kube.Sink[T]
	empty    func() T
	log      *slog.Logger

	mu     sync.Mutex
	synced bool      // the API has told everything
	whole  bool      // and all of it was saved
	heard  time.Time // when it last told something; zero if it never did
	// saved are the objects that the file had at the start, without those that the API has
	// told of since, which are newer. nil once it has told everything.
	saved map[types.NamespacedName]bool
	// restored are objects of the file that the API hasn't told of yet.
	restored map[types.NamespacedName]bool
}

func newKeeper[T object](s *Store, resource string, sink kube.Sink[T], empty func() T, log *slog.Logger) *keeper[T] {
	k := &keeper[T]{store: s, resource: resource, sink: sink, empty: empty, log: log, restored: map[types.NamespacedName]bool{}}
	var err error
	if k.saved, err = s.names(resource); err != nil {
		log.Warn("the last known state of an object could not be read", "error", err)
	}
	return k
}

// Keep returns a sink for a watch of a resource, which passes everything on to
// the given one and saves it. If the API is silent for some seconds before it has told
// everything, the given sink gets the saved objects that it hasn't told of. What of them
// is gone when the API answers is deleted then. A nil Store passes everything on. The
// function empty makes an object to decode into.
func Keep[T object](ctx context.Context, s *Store, resource string, sink kube.Sink[T], empty func() T, log *slog.Logger) kube.Sink[T] {
	if s == nil {
		return sink
	}
	k := newKeeper(s, resource, sink, empty, log)
	go k.awaitSilence(ctx)
	return kube.Sink[T]{Set: k.set, Delete: k.delete, Synced: k.complete}
}

// awaitSilence restores what is saved once the API is silent, until it has told everything.
func (k *keeper[T]) awaitSilence(ctx context.Context) {
	for wait := silenceTimeout; wait > 0; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if wait = k.silenceLeft(time.Now()); wait <= 0 {
			k.restore()
		}
	}
}

// silenceLeft is how much longer the API may be silent: a list of a large cluster may
// take longer than silenceTimeout, and isn't silence.
func (k *keeper[T]) silenceLeft(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return silenceTimeout - now.Sub(k.heard)
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (k *keeper[T]) set(o T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.restored, nameOf(o))
	if !k.synced {
		k.heard = time.Now()
		delete(k.saved, nameOf(o))
	}
	k.save(nameOf(o), o)
	k.sink.Set(o)
}

// save keeps an object for the next start; nil deletes it.
func (k *keeper[T]) save(name types.NamespacedName, value encoder) {
	if err := k.store.set(k.resource, name, value); err != nil {
		k.log.Debug("an object is not kept for the next start", "resource", k.resource, "name", name, "error", err)
	}
}

func (k *keeper[T]) delete(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(name)
}

func (k *keeper[T]) forget(name types.NamespacedName) {
	delete(k.restored, name)
	k.save(name, nil)
	k.sink.Delete(name)
}

// complete is called after each whole list. After the first, the file holds that list:
// until then it may hold objects that are gone, or only a part.
func (k *keeper[T]) complete() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.restored {
		k.forget(name)
	}
	k.synced = true
	for name := range k.saved {
		k.save(name, nil)
	}
	k.saved = nil
	if !k.whole {
		err := k.store.complete(k.resource)
		if k.whole = err == nil; err != nil {
			k.log.Warn("the last known state can't be saved for the next start", "resource", k.resource, "error", err)
		}
	}
	k.sink.Synced()
}

// restore hands the saved objects to the sink, if the file holds a whole list.
func (k *keeper[T]) restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.synced {
		return
	}
	saved, err := k.store.all(k.resource, func(value []byte) error {
		o := k.empty()
		if err := o.Unmarshal(value); err != nil {
			return err
		}
		if k.saved[nameOf(o)] {
			k.restored[nameOf(o)] = true
			k.sink.Set(o)
		}
		return nil
	})
	if err != nil {
		k.log.Warn("the last known state can't be read", "error", err)
		return
	}
	if saved.IsZero() {
		return
	}
	k.log.Info("the API does not answer; serving the last known state", "resource", k.resource, "objects", len(k.restored), "since", saved.Local().Format(time.DateTime))
	k.sink.Synced()
}
