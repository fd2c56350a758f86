package storage

import (
	"context"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestProgress: who asks a store for its progress gets it, also if nobody writes
// after a watch has begun at the next revision.
func TestProgress(t *testing.T) {
	for name, options := range map[string]Options{
		"embedded": {Dir: t.TempDir()},
		"existing": {Servers: []string{startServer(t)}, Prefix: "/fairway-progress"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Open(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}()
			testProgress(t, b.Client.Client)
		})
	}
}

func testProgress(t *testing.T, client *clientv3.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	now, err := client.Get(ctx, "/registry/nothing")
	if err != nil {
		t.Fatal(err)
	}
	next := now.Header.Revision + 1
	w := client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(next), clientv3.WithCreatedNotify())
	if created := <-w; !created.Created {
		t.Fatalf("watch: %+v", created)
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		if err := client.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-w:
			if !r.IsProgressNotify() || r.Header.Revision < now.Header.Revision {
				t.Fatalf("watch delivers %+v, want progress", r)
			}
			nudgedOnce(t, client, next)
			return
		case <-again.C:
		}
	}
}

// nudgedOnce checks that asking again writes nothing more.
func nudgedOnce(t *testing.T, client *clientv3.Client, want int64) {
	t.Helper()
	for range 3 {
		if err := client.RequestProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	now, err := client.Get(t.Context(), "/registry/nothing")
	if err != nil {
		t.Fatal(err)
	}
	if now.Header.Revision != want {
		t.Errorf("the store is at revision %d, want %d", now.Header.Revision, want)
	}
}

// TestProgressOfNewWatch: progress never runs ahead of a watch that has just begun,
// whatever watches there are of other resources, who ask for theirs all the time.
func TestProgressOfNewWatch(t *testing.T) {
	b, err := Open(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	old, young := ofResource(b.Client.Client, "old"), ofResource(b.Client.Client, "young")
	reports := old.Watch(ctx, "/registry/old/", clientv3.WithPrefix())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() {
		for range reports { //nolint:revive // read until it ends
		}
	})
	for range 4 {
		asking.Go(func() {
			for ctx.Err() == nil {
				if err := old.RequestProgress(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range 300 {
		newWatchSeesAll(ctx, t, young.Client)
	}
}

// newWatchSeesAll watches from before a write, and holds that the write comes before
// progress beyond it.
func newWatchSeesAll(ctx context.Context, t *testing.T, client *clientv3.Client) {
	t.Helper()
	written, err := client.Put(ctx, "/registry/young/x", "")
	if err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w := client.Watch(watching, "/registry/young/", clientv3.WithPrefix(), clientv3.WithRev(written.Header.Revision))
	if r := <-w; r.IsProgressNotify() {
		t.Fatalf("progress at %d before the event at %d", r.Header.Revision, written.Header.Revision)
	}
}
