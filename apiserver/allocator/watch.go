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
	for _, r := range a.addresses {
		r.reset(revision)
	}
	for _, kv := range resp.Kvs {
		if pool, n, ok := a.find(string(kv.Key)); ok {
			pool.take(n, kv.ModRevision)
		}
	}
	return revision, nil
}

// follow keeps the memory in step with etcd, for the writes of other servers.
func (a *Allocator) follow(ctx context.Context, client *clientv3.Client, revision int64) {
	defer close(a.done)
	for ctx.Err() == nil {
		revision = a.watch(ctx, client, revision)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		loaded, err := a.load(ctx, client)
		if err != nil {
			// Allocation goes on: a stale memory costs attempts, not correctness.
			slog.Warn("allocator: relist claims", "err", err)
			continue
		}
		revision = loaded
	}
}

// watch applies changes after a revision until the watch breaks, and returns
// the last revision seen.
func (a *Allocator) watch(ctx context.Context, client *clientv3.Client, revision int64) int64 {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
		if err := resp.Err(); err != nil {
			slog.Warn("allocator: watch claims", "err", err)
			return revision
		}
		for _, event := range resp.Events {
			pool, n, ok := a.find(string(event.Kv.Key))
			switch {
			case !ok:
			case event.Type == clientv3.EventTypeDelete:
				pool.confirmFree(n, event.Kv.ModRevision)
			default:
				pool.take(n, event.Kv.ModRevision)
			}
		}
		revision = resp.Header.Revision
	}
	return revision
}
