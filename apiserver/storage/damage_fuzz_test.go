package storage

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzDamage: whatever a store's files hold, looking at them ends without a panic.
func FuzzDamage(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "etcd")
	b, err := Open(f.Context(), Options{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	if err := b.Close(); err != nil {
		f.Fatal(err)
	}
	database := filepath.Join("member", "snap", "db")
	log := filepath.Join("member", "wal", "0000000000000000-0000000000000000.wal")
	for _, file := range []string{database, log} {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file == database, content[:min(len(content), 1<<15)])
	}
	f.Fuzz(func(t *testing.T, isDatabase bool, content []byte) {
		dir := t.TempDir()
		for file, content := range map[string][]byte{database: content, log: content} {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if (file == database) != isDatabase {
				content = nil
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if isDatabase {
			_, _ = appliedIndex(filepath.Join(dir, database)) // whatever it says
			return
		}
		_, _ = lastLogged(filepath.Join(dir, "member", "wal"), filepath.Join(dir, "member", "snap"))
	})
}
