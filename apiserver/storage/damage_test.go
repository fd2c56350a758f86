package storage

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
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
