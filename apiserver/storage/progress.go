package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/metadata"
)

// progressKey is written to where etcd would otherwise not report progress.
const progressKey = ownPrefix + "progress"

// progressWatcher has etcd report progress whenever it is asked to.
//
// A watch cache answers a list that must be up to date once etcd has reported a
// revision that is high enough. Caches begin to watch at the revision after the
// one that they listed. For as long as the store has not reached that revision, etcd
// reports nothing (progressIfSync in etcd's server/storage/mvcc/watchable_store.go). If
// nobody writes, as in a cluster that has just started, lists would wait for ever.
type progressWatcher struct {
	clientv3.Watcher
	kv   clientv3.KV
	disk *disk // that must not be written to when it is full; nil if it isn't ours

	mu    sync.Mutex
	begin int64 // the highest revision at which a watch begins

	nudging sync.Mutex
	reached int64 // a revision that the store has reached
}

// reportProgress makes lists of a client's watch caches independent of other writes.
func reportProgress(client *clientv3.Client, d *disk) {
	client.Watcher = &progressWatcher{Watcher: client.Watcher, kv: client.KV, disk: d}
}

// Watch implements clientv3.Watcher.
func (w *progressWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.mu.Lock()
	w.begin = max(w.begin, clientv3.OpGet(key, opts...).Rev())
	w.mu.Unlock()
	return w.Watcher.Watch(ctx, key, opts...)
}

// nudgeTimeout bounds a write to progressKey; without a quorum none comes to an end.
const nudgeTimeout = 2 * time.Second

// RequestProgress implements clientv3.Watcher. It writes once for each time that
// watches have begun at a revision yet to come.
func (w *progressWatcher) RequestProgress(ctx context.Context) error {
	if err := w.nudge(ctx); err != nil {
		return fmt.Errorf("have the store reach the revision at which watches begin: %w", err)
	}
	return w.Watcher.RequestProgress(ctx)
}

// nudge brings the store to the revision at which the last watch begins. Who
// comes while somebody else does that waits for it.
func (w *progressWatcher) nudge(ctx context.Context) error {
	w.nudging.Lock()
	defer w.nudging.Unlock()
	w.mu.Lock()
	begin := w.begin
	w.mu.Unlock()
	if w.reached >= begin || w.disk != nil && w.disk.full.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nudgeTimeout)
	defer cancel()
	now, err := w.kv.Get(ctx, progressKey, clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	if w.reached = now.Header.Revision; w.reached >= begin {
		return nil
	}
	written, err := w.kv.Put(ctx, progressKey, "")
	if err != nil {
		return err
	}
	w.reached = written.Header.Revision
	return nil
}

// streamKey is in the metadata of a resource's watches. The client has one stream for
// all watches with the same metadata.
const streamKey = "fairway-resource"

// ofResource is a client whose watches have a stream of their own.
//
// On a stream that several watch caches share, etcd may report to a watch that has just
// begun what it said of the others: its progress and its answers to requests go through
// two channels, in no order (sendLoop in etcd's server/etcdserver/api/v3rpc/watch.go).
// The new cache then takes itself for newer than events that are still to come, and who
// lists from it never learns of these.
func ofResource(client *clientv3.Client, name string) *kubernetes.Client {
	own := clientv3.NewCtxClient(client.Ctx(), clientv3.WithZapLogger(client.GetLogger()))
	own.Cluster, own.KV, own.Lease, own.Auth, own.Maintenance = client.Cluster, client.KV, client.Lease, client.Auth, client.Maintenance
	own.Watcher = &streamWatcher{Watcher: client.Watcher, name: name}
	c := &kubernetes.Client{Client: own}
	c.Kubernetes = c
	return c
}

// streamWatcher watches on a stream that nothing else is on.
type streamWatcher struct {
	clientv3.Watcher
	name string
}

func (w *streamWatcher) stream(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, streamKey, w.name)
}

// Watch implements clientv3.Watcher.
func (w *streamWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return w.Watcher.Watch(w.stream(ctx), key, opts...)
}

// RequestProgress implements clientv3.Watcher.
func (w *streamWatcher) RequestProgress(ctx context.Context) error {
	return w.Watcher.RequestProgress(w.stream(ctx))
}
