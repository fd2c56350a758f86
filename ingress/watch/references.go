package watch

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// lookups is how many Secrets and ConfigMaps are asked for at a time.
	lookups = 8
	// watchesEach is how many are watched one by one. If there are more, one watch of
	// all costs less; it keeps nothing of those that aren't referred to.
	watchesEach = 100
)

// How often those are asked for that may be read but not watched.
var (
	askSoon  = time.Second // while it isn't there
	askLater = 10 * time.Second
	askWatch = 10 * time.Minute // whether it may be watched now
)

// referenced are the objects of one kind that something refers to, and no others:
// certificates must not be read by those who have no use for them.
type referenced[T metav1.Object] struct {
	w *Watch
	source[T]
	slots chan struct{} // for lookups at a time

	// Guarded by the mutex of w.
	followers map[types.NamespacedName]*follower[T]
	all       *everything // nil while each is watched by itself
	refused   time.Time   // when a watch of all was
}

// follower is what is known of one object.
type follower[T metav1.Object] struct {
	object  *T // nil if there is none
	known   bool
	learnt  chan struct{} // closed when it is known
	awaited int           // how many wait for it
	stop    context.CancelFunc
	unwatch context.CancelFunc // ends a watch of it alone; nil if there was none
}

// Refer says to which Secrets and ConfigMaps something refers. Only those are read.
// If some of them were not known yet, Refer waits until they are or ctx is done, and
// reports that Objects has more now.
func (w *Watch) Refer(ctx context.Context, secrets, configMaps map[types.NamespacedName]struct{}) (more bool) {
	newSecrets, newMaps := w.secrets.want(secrets), w.configMaps.want(configMaps)
	w.secrets.await(ctx, newSecrets)
	w.configMaps.await(ctx, newMaps)
	return len(newSecrets)+len(newMaps) > 0
}

// want begins to follow what isn't followed yet, and ends the rest.
func (r *referenced[T]) want(names map[types.NamespacedName]struct{}) (unknown []*follower[T]) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for name, f := range r.followers {
		if _, still := names[name]; !still {
			f.stop()
			delete(r.followers, name)
		}
	}
	for name := range names {
		if r.followers[name] != nil || name.Name == "" || r.w.running.Err() != nil {
			continue
		}
		ctx, stop := context.WithCancel(r.w.running)
		f := &follower[T]{learnt: make(chan struct{}), awaited: 1, stop: stop}
		r.followers[name] = f
		unknown = append(unknown, f)
		r.w.threads.Go(func() { r.follow(ctx, name, f) })
	}
	r.watchAll()
	return unknown
}

// await waits until all are known. Changes that come first are no news then.
func (r *referenced[T]) await(ctx context.Context, list []*follower[T]) {
	for _, f := range list {
		select {
		case <-f.learnt:
		case <-ctx.Done():
		case <-r.w.running.Done():
		}
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	for _, f := range list {
		f.awaited--
	}
}

// follow looks one object up, and then watches it, or asks again and again where
// the API lets it be read and not watched.
func (r *referenced[T]) follow(ctx context.Context, name types.NamespacedName, f *follower[T]) {
	pause, nextWatch := askSoon, time.Now()
	for ctx.Err() == nil {
		found, err := r.lookUp(ctx, name)
		switch {
		case err == nil:
			r.learn(name, f, found)
		case ctx.Err() != nil:
			return
		default:
			r.w.log.Warn("an object that is referred to could not be read; trying again", "kind", r.kind, "name", name, "error", err)
			if apierrors.IsForbidden(err) { // as if there were none
				r.learn(name, f, nil)
			}
		}
		if err == nil && !time.Now().Before(nextWatch) && !r.hasAll() {
			if r.watch(ctx, name, f); ctx.Err() != nil {
				return
			}
			nextWatch = time.Now().Add(askWatch)
		}
		if pause = min(2*pause, askLater); found == nil && err == nil {
			pause = min(pause, 5*askSoon)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		for r.hasAll() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(askLater):
			}
		}
	}
}

// lookUp asks for one object; nil if there is none.
func (r *referenced[T]) lookUp(ctx context.Context, name types.NamespacedName) (*T, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	o, err := r.get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &o, nil
}

// learn takes in an object as it is now; nil if there is none.
func (r *referenced[T]) learn(name types.NamespacedName, f *follower[T], now *T) {
	var object, old any
	if now != nil {
		if _, err := r.w.trim(*now); err != nil {
			r.w.log.Error("an object could not be read", "kind", r.kind, "name", name, "error", err)
			return
		}
		object = *now
	}
	r.w.mu.Lock()
	if r.followers[name] != f {
		r.w.mu.Unlock()
		return
	}
	if f.object != nil {
		old = *f.object
	}
	first := !f.known
	isNews := (old != nil || object != nil) && (!first || f.awaited == 0)
	f.object, f.known = now, true
	if first {
		close(f.learnt)
	}
	r.w.mu.Unlock()
	if isNews {
		r.w.happened(old, object)
	}
}

// objects are those that are there.
func (r *referenced[T]) objects() map[types.NamespacedName]T {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	out := make(map[types.NamespacedName]T, len(r.followers))
	for name, f := range r.followers {
		if f.object != nil {
			out[name] = *f.object
		}
	}
	return out
}

// watch follows one object until ctx is done, the API refuses, or a watch of all
// objects says what happens.
func (r *referenced[T]) watch(ctx context.Context, name types.NamespacedName, f *follower[T]) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.w.mu.Lock()
	f.unwatch = stop
	r.w.mu.Unlock()
	asked := func(err error) {
		if apierrors.IsForbidden(err) {
			stop()
		}
	}
	r.stream(ctx, name, asked, func(n types.NamespacedName, now *T) {
		if n == name {
			r.learn(name, f, now)
		}
	}, func(has func(types.NamespacedName) bool) {
		if !has(name) {
			r.learn(name, f, nil)
		}
	})
}

// everything is a watch of all objects of a kind.
type everything struct {
	works bool // the API lets it
	stop  context.CancelFunc
}

// watchAll begins or ends the watch of all. The mutex is held.
func (r *referenced[T]) watchAll() {
	if r.all != nil && len(r.followers) <= watchesEach/2 {
		r.all.stop()
		r.all = nil
	}
	if r.all != nil || len(r.followers) <= watchesEach || time.Since(r.refused) < askWatch {
		return
	}
	ctx, stop := context.WithCancel(r.w.running)
	all := &everything{stop: stop}
	r.all = all
	r.w.threads.Go(func() {
		defer stop()
		r.stream(ctx, types.NamespacedName{}, func(err error) {
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			if all.works = err == nil; apierrors.IsForbidden(err) {
				r.refused = time.Now()
				stop()
			}
		}, r.learnAny, r.compare)
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		if r.all == all {
			r.all = nil
		}
	})
}

// compare takes in which objects there are, and ends the watches of single ones.
func (r *referenced[T]) compare(has func(types.NamespacedName) bool) {
	gone := map[types.NamespacedName]*follower[T]{}
	r.w.mu.Lock()
	for name, f := range r.followers {
		if f.unwatch != nil {
			f.unwatch()
		}
		if !has(name) {
			gone[name] = f
		}
	}
	r.w.mu.Unlock()
	for name, f := range gone {
		r.learn(name, f, nil)
	}
}

// learnAny takes in an object, if something refers to it.
func (r *referenced[T]) learnAny(name types.NamespacedName, now *T) {
	r.w.mu.Lock()
	f := r.followers[name]
	r.w.mu.Unlock()
	if f != nil {
		r.learn(name, f, now)
	}
}

// hasAll reports whether a watch of all says what happens.
func (r *referenced[T]) hasAll() bool {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return r.all != nil && r.all.works
}

// source is how objects of a kind are read.
type source[T metav1.Object] struct {
	kind   string
	get    func(context.Context, types.NamespacedName) (T, error)
	stream func(ctx context.Context, one types.NamespacedName, asked func(error), learn func(types.NamespacedName, *T), synced func(has func(types.NamespacedName) bool))
}

// makeReferenced makes what follows Secrets and ConfigMaps.
func (w *Watch) makeReferenced() {
	w.running, w.end = context.WithCancel(context.Background())
	w.secrets = &referenced[*corev1.Secret]{w: w, slots: make(chan struct{}, lookups), followers: map[types.NamespacedName]*follower[*corev1.Secret]{}, source: source[*corev1.Secret]{
		kind: "Secret",
		get: func(ctx context.Context, n types.NamespacedName) (*corev1.Secret, error) {
			return w.Core.CoreV1().Secrets(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
		},
		stream: w.streamSecrets,
	}}
	w.configMaps = &referenced[*corev1.ConfigMap]{w: w, slots: make(chan struct{}, lookups), followers: map[types.NamespacedName]*follower[*corev1.ConfigMap]{}, source: source[*corev1.ConfigMap]{
		kind: "ConfigMap",
		get: func(ctx context.Context, n types.NamespacedName) (*corev1.ConfigMap, error) {
			return w.Core.CoreV1().ConfigMaps(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
		},
		stream: w.streamConfigMaps,
	}}
}
