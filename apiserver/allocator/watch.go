package allocator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// load learns what is taken now, and returns the revision of that knowledge.
func (a *Allocator) load(ctx context.Context, client *clientv3.Client) (int64, error) {
	resp, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("list claims: %w", err)
	}
	revision := resp.Header.Revision
	a.ports.reset(revision)
	for _, r := range a.all() {
		r.reset(revision)
	}
	for _, kv := range resp.Kvs {
		for _, place := range a.find(string(kv.Key)) {
			place.pool.take(place.n, kv.ModRevision)
		}
	}
	return revision, nil
}

// follow keeps the memory in step with etcd, for the writes of other servers.
func (a *Allocator) follow(ctx context.Context, client *clientv3.Client, revision int64) {
	defer close(a.done)
	for ctx.Err() == nil {
		asked := a.watch(ctx, client, revision)
		if asked == nil && !pause(ctx) {
			return
		}
		for {
			loaded, err := a.load(ctx, client)
			if err == nil {
				revision = loaded
				break
			}
			// Allocation goes on: a stale memory costs attempts, not correctness.
			slog.Warn("claims of addresses and ports could not be listed again", "error", err)
			if !pause(ctx) {
				return
			}
		}
		if asked != nil {
			close(asked)
		}
	}
}

// pause waits a second; false if the context is done.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Second):
		return true
	}
}

// watch applies changes after a revision until the watch breaks or somebody asks
// for a relist, and returns who asked.
func (a *Allocator) watch(ctx context.Context, client *clientv3.Client, revision int64) chan struct{} {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	for {
		select {
		case asked := <-a.relist:
			return asked
		case resp, ok := <-changes:
			if !ok {
				return nil
			}
			if err := resp.Err(); err != nil {
				slog.Warn("claims of addresses and ports could not be watched", "error", err)
				return nil
			}
			a.apply(resp.Events)
		}
	}
}

// apply takes in changes of claims.
func (a *Allocator) apply(events []*clientv3.Event) {
	for _, event := range events {
		for _, place := range a.find(string(event.Kv.Key)) {
			if event.Type == clientv3.EventTypeDelete {
				place.pool.confirmFree(place.n, event.Kv.ModRevision)
			} else {
				place.pool.take(place.n, event.Kv.ModRevision)
			}
		}
	}
}
