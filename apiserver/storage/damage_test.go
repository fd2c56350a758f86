package storage

import (
	"encoding/binary"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
)

// madeStore is the directory of a store that was used once.
func madeStore(t *testing.T) (dir, database string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "etcd")
	b, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := CheckFiles(dir); err != nil {
		t.Fatalf("nothing is damaged: %v", err)
	}
	return dir, filepath.Join(dir, "member", "snap", "db")
}

// TestDamagedPage: a page that leads beyond the database's end doesn't end the process.
func TestDamagedPage(t *testing.T) {
	dir, database := madeStore(t)
	content, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	const bucket = "meta" // its page's number follows
	for at := 0; ; {
		i := strings.Index(string(content[at:]), bucket)
		if i < 0 {
			break
		}
		at += i + len(bucket)
		binary.LittleEndian.PutUint64(content[at:], 1<<34)
	}
	if err := os.WriteFile(database, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, damaged := errors.AsType[*DamagedError](CheckFiles(dir)); !damaged {
		t.Error("the database is not called damaged")
	}
}

// TestHeldElsewhere: a database that another program has open, as one does that copies it, is not
// called damaged: who is told so moves it away.
func TestHeldElsewhere(t *testing.T) {
	dir, database := madeStore(t)
	held, err := bolt.Open(database, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() //nolint:errcheck // nothing was written
	err = CheckFiles(dir)
	if _, damaged := errors.AsType[*DamagedError](err); damaged || err == nil {
		t.Errorf("it is said to be %v", err)
	}
}

// TestDamagedSnapshot: etcd begins with an older snapshot of its state where the newest is damaged,
// and the log goes back to it; so the store isn't refused.
func TestDamagedSnapshot(t *testing.T) {
	dir := t.TempDir()
	start := func() *embed.Etcd {
		c := embed.NewConfig()
		c.Dir, c.LogLevel, c.LogOutputs, c.SnapshotCount, c.SnapshotCatchUpEntries = dir, "panic", []string{"/dev/null"}, 5, 1
		local := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
		c.ListenClientUrls, c.ListenPeerUrls = []url.URL{local}, []url.URL{local}
		e, err := embed.StartEtcd(c)
		if err != nil {
			t.Fatal(err)
		}
		<-e.Server.ReadyNotify()
		return e
	}
	e := start()
	for i := range 40 {
		if _, err := e.Server.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("key"), Value: []byte{byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	e.Close()
	files, err := filepath.Glob(filepath.Join(dir, "member", "snap", "*.snap"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d snapshots, %v", len(files), err)
	}
	if err := os.WriteFile(slices.Max(files), []byte("not a snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckFiles(dir); err != nil {
		t.Fatalf("with an older snapshot: %v", err)
	}
	e = start()
	got, err := e.Server.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("key")})
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Value[0] != 39 {
		t.Errorf("etcd has %v, %v", got, err)
	}
	e.Close()
}
