package storage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestMaintenance: etcd refuses writes at its quota. Old revisions are dropped
// then, the file is made smaller, and the alarm is taken back, without a write.
func TestMaintenance(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	care := maintenance{quota: 16 << 20, period: 50 * time.Millisecond, small: 1 << 20, again: time.Second}
	b := openMember(ctx, t, Options{Dir: t.TempDir(), care: &care})
	client := b.Client.Client
	var err error
	for range 1000 { // the same key: all but the last revision are garbage
		if _, err = client.Put(ctx, "/key", strings.Repeat("x", 256<<10)); err != nil {
			break
		}
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("at its quota etcd says %v", err)
	}
	alarms := func() []*pb.AlarmMember {
		list, err := client.AlarmList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return list.Alarms
	}
	for len(alarms()) > 0 {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			t.Fatal("the alarm stays")
		}
	}
	if _, err := client.Put(ctx, "/key", "y"); err != nil {
		t.Errorf("after the alarm was taken back: %v", err)
	}
	now, err := client.Status(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if now.DbSize > care.quota/4 {
		t.Errorf("the file has %d bytes, for less than one that is used", now.DbSize)
	}
}

// TestDefragmentation: a file of which more than half is unused is made smaller
// without being full, and serves what was in it.
func TestDefragmentation(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	care := usualMaintenance()
	care.period, care.small = 50*time.Millisecond, 1<<20
	client := openMember(ctx, t, Options{Dir: t.TempDir(), care: &care}).Client.Client
	var last int64
	for range 32 {
		written, err := client.Put(ctx, "/key", strings.Repeat("x", 256<<10))
		if err != nil {
			t.Fatal(err)
		}
		last = written.Header.Revision
	}
	if _, err := client.Compact(ctx, last); err != nil {
		t.Fatal(err)
	}
	for {
		// With each write, etcd takes pages back that nothing uses any more.
		if _, err := client.Put(ctx, "/other", "y"); err != nil {
			t.Fatal(err)
		}
		status, err := client.Status(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if status.DbSize < 4<<20 {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			t.Fatalf("the file has %d bytes still, of which %d are used", status.DbSize, status.DbSizeInUse)
		}
	}
	if got, err := client.Get(ctx, "/key"); err != nil || len(got.Kvs) != 1 || len(got.Kvs[0].Value) != 256<<10 {
		t.Errorf("after defragmentation the store has %v, %v", got, err)
	}
}

// TestOneTurn: one member defragments at a time, and the next one after it.
func TestOneTurn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := openMember(ctx, t, Options{Dir: t.TempDir()}).Client.Client
	end, mine, err := takeTurn(ctx, client, 1)
	if err != nil || !mine {
		t.Fatalf("the first has no turn: %v", err)
	}
	if _, mine, err := takeTurn(ctx, client, 2); err != nil || mine {
		t.Errorf("two at a time: %v, %v", mine, err)
	}
	if err := end(ctx); err != nil {
		t.Fatal(err)
	}
	if _, mine, err := takeTurn(ctx, client, 2); err != nil || !mine {
		t.Errorf("the second has no turn after the first: %v", err)
	}
}
