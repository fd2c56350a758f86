package storage

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
)

const (
	// mostReadAhead is how many objects are read for a page and those after it.
	mostReadAhead = 5000
	// mostLists is how many paginated lists of a resource are read ahead at a time, and
	// readAheadTime how long a client may take until it asks for its next page.
	mostLists     = 4
	readAheadTime = 30 * time.Second
)

// pager reads ahead where a list is paginated. The watch cache, and etcd too, go through
// all objects behind a page for each page, so that a list of n objects costs n²; this
// reads several pages at once and hands them out one by one. All pages of a list are of
// one revision, so that what was read ahead doesn't go stale.
type pager struct {
	apistorage.Interface
	keyFunc func(runtime.Object) (string, error)

	mu   sync.Mutex
	kept []*readAhead // the oldest first
}

// readAhead are the objects after a page.
type readAhead struct {
	id    pageID
	items reflect.Value // a slice of objects
	// version is the revision of the list, rest where it goes on behind items, and
	// remaining how many objects there are behind items; nil if that isn't known.
	version   uint64
	rest      string
	remaining *int64
	timer     *time.Timer
}

// pageID is what a client asks for a page with.
type pageID struct{ key, next, labels, fields string }

// GetList implements storage.Interface.
func (p *pager) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	limit := opts.Predicate.Limit
	if !readsAhead(key, opts) {
		return p.Interface.GetList(ctx, key, opts, list)
	}
	id := pageID{key, opts.Predicate.Continue, opts.Predicate.Label.String(), opts.Predicate.Field.String()}
	ahead := p.take(id)
	if ahead == nil {
		var err error
		if ahead, err = p.read(ctx, id, opts, list); err != nil {
			return err
		}
	}
	return p.serve(ahead, int(limit), opts.Predicate.Empty(), list)
}

// readsAhead reports whether a list asks for a page after the first one, at a revision.
func readsAhead(key string, opts apistorage.ListOptions) bool {
	limit := opts.Predicate.Limit
	if limit <= 0 || limit > mostReadAhead/2 || opts.Predicate.Continue == "" || !opts.Recursive {
		return false
	}
	if opts.ResourceVersion != "" || opts.ResourceVersionMatch != "" || opts.Predicate.ShardSelector != nil ||
		opts.Predicate.Label == nil || opts.Predicate.Field == nil {
		return false
	}
	// One whose revision is gone goes on at the newest, whichever that is.
	_, version, err := apistorage.DecodeContinue(opts.Predicate.Continue, key)
	return err == nil && version > 0
}

// take returns what was read ahead for a page, which then belongs to the caller; nil if
// nothing was.
func (p *pager) take(id pageID) *readAhead {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.kept, func(a *readAhead) bool { return a.id == id })
	if i < 0 {
		return nil
	}
	ahead := p.kept[i]
	p.kept = slices.Delete(p.kept, i, i+1)
	ahead.timer.Stop()
	return ahead
}

// keep keeps what was read ahead, for a while.
func (p *pager) keep(ahead *readAhead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) == mostLists {
		p.kept[0].timer.Stop()
		p.kept = slices.Delete(p.kept, 0, 1)
	}
	p.kept = append(p.kept, ahead)
	ahead.timer = time.AfterFunc(readAheadTime, func() { p.forget(ahead) })
}

func (p *pager) forget(ahead *readAhead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = slices.DeleteFunc(p.kept, func(a *readAhead) bool { return a == ahead })
}

// stop forgets all that was read ahead.
func (p *pager) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ahead := range p.kept {
		ahead.timer.Stop()
	}
	p.kept = nil
}

// read reads a page and those after it; list is overwritten.
func (p *pager) read(ctx context.Context, id pageID, opts apistorage.ListOptions, list runtime.Object) (*readAhead, error) {
	opts.Predicate.Limit = mostReadAhead / opts.Predicate.Limit * opts.Predicate.Limit
	if err := p.Interface.GetList(ctx, id.key, opts, list); err != nil {
		return nil, err
	}
	items, err := itemsOf(list)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("read pages of %s: %w", id.key, err)
	}
	version, err := p.Versioner().ParseResourceVersion(accessor.GetResourceVersion())
	if err != nil {
		return nil, fmt.Errorf("read pages of %s: %w", id.key, err)
	}
	ahead := &readAhead{id: id, version: version, rest: accessor.GetContinue(), remaining: accessor.GetRemainingItemCount()}
	ahead.items = reflect.New(items.Type()).Elem()
	ahead.items.Set(items)
	return ahead, nil
}

// serve makes list the next page of what was read, and keeps the others.
func (p *pager) serve(ahead *readAhead, limit int, counted bool, list runtime.Object) error {
	items, err := itemsOf(list)
	if err != nil {
		return err
	}
	n := min(limit, ahead.items.Len())
	items.Set(ahead.items.Slice3(0, n, n))
	next, remaining := ahead.rest, ahead.remaining
	if left := int64(ahead.items.Len() - n); left > 0 {
		last, err := p.keyFunc(items.Index(n - 1).Addr().Interface().(runtime.Object))
		if err != nil {
			return fmt.Errorf("find the key of a page's last object: %w", err)
		}
		if next, err = apistorage.EncodeContinue(last+"\x00", ahead.id.key, int64(ahead.version)); err != nil {
			return fmt.Errorf("say where the next page of %s begins: %w", ahead.id.key, err)
		}
		remaining = nil
		if counted {
			if ahead.remaining != nil {
				left += *ahead.remaining
			}
			remaining = &left
		}
		kept := *ahead
		kept.id.next = next
		kept.items = ahead.items.Slice(n, ahead.items.Len())
		p.keep(&kept)
	}
	return p.Versioner().UpdateList(list, ahead.version, next, remaining)
}

// itemsOf returns the slice of a list's objects.
func itemsOf(list runtime.Object) (reflect.Value, error) {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return reflect.Value{}, fmt.Errorf("find the items of %T: %w", list, err)
	}
	return reflect.ValueOf(pointer).Elem(), nil
}
