// Package queue is the loop that every controller runs in: keys of objects to
// look at, merged while they wait, taken by a fixed number of workers, and
// retried with growing delays for as long as the work on them fails.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
	// quietFailures is how often a key may fail before a person hears of it:
	// conflicts and caches that lag behind by a moment end by themselves.
	quietFailures = 3
)

// ErrStale says that the cache does not yet show what was written before, so
// that a decision taken from it could be wrong. The key is tried again.
var ErrStale = errors.New("cache is behind the last write")

// Queue holds keys and calls sync for each, never for the same key twice at a time.
type Queue[K comparable] struct {
	log   *slog.Logger
	sync  func(context.Context, K) error
	items workqueue.TypedRateLimitingInterface[K]
}

// New returns a queue whose keys are worked on by sync.
func New[K comparable](log *slog.Logger, sync func(context.Context, K) error) *Queue[K] {
	// No bucket over all keys: a failing key waits for itself only.
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstRetry, lastRetry)
	return &Queue[K]{
		log:   log,
		sync:  sync,
		items: workqueue.NewTypedRateLimitingQueue(limiter),
	}
}

// Add asks for a look at key, at once.
func (q *Queue[K]) Add(key K) { q.items.Add(key) }

// AddAfter asks for a look at key after the given time.
func (q *Queue[K]) AddAfter(key K, after time.Duration) { q.items.AddAfter(key, after) }

// Failures returns how often key has failed since it last succeeded.
func (q *Queue[K]) Failures(key K) int { return q.items.NumRequeues(key) }

// Run works until ctx is done and its last worker has returned.
func (q *Queue[K]) Run(ctx context.Context, workers int) {
	stop := context.AfterFunc(ctx, q.items.ShutDown)
	defer stop()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for q.next(ctx) {
			}
		})
	}
	running.Wait()
}

func (q *Queue[K]) next(ctx context.Context) bool {
	key, shutdown := q.items.Get()
	if shutdown {
		return false
	}
	defer q.items.Done(key)
	err := q.try(ctx, key)
	if err == nil {
		q.items.Forget(key)
		return true
	}
	if ctx.Err() != nil {
		return true
	}
	level := slog.LevelWarn
	if q.Failures(key) < quietFailures || errors.Is(err, ErrStale) || apierrors.IsConflict(err) {
		level = slog.LevelDebug
	}
	q.log.Log(ctx, level, "failed; another attempt follows", "key", key, "failures", q.Failures(key)+1, "error", err)
	q.items.AddRateLimited(key)
	return true
}

// try turns a panic into an error: the API server runs in the same process and
// must not go down because one object is more than a controller can take.
func (q *Queue[K]) try(ctx context.Context, key K) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return q.sync(ctx, key)
}
