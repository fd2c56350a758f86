package apiserver

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/storage"
)

// dataDirectory is one of the first server of a cluster, which has stored something.
func dataDirectory(t *testing.T) Config {
	t.Helper()
	config := newCluster(t).config(1)
	dir := filepath.Join(config.DataDir, "pki")
	authorities, err := pki.OpenAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.TokenKeys(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.KeyNames(EncryptionKeys(config.DataDir)); err != nil { // makes one
		t.Fatal(err)
	}
	peer, err := authorities.Peer("s1", nil, nil)
	if err == nil {
		err = peer.WriteFile(peerFiles(config.DataDir).CertFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &membership{Name: "s1", Stored: true, shared: config.shared()}
	if err := m.write(config.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(config.etcdDir(), os.DirFS(restoredStore(t))); err != nil {
		t.Fatal(err)
	}
	return config
}

// restoredStore is an etcd's directory with all kinds of files: one that was restored from a snapshot, and written to
// since.
func restoredStore(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "snapshot")
	written := func(name string, more func(*storage.Backend) error) {
		b, err := storage.Open(t.Context(), storage.Options{Dir: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if _, err := b.Client.Put(t.Context(), fmt.Sprintf("/test/%d", i), strings.Repeat("a", 1000)); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(more(b), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	written("first", func(b *storage.Backend) error {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		return errors.Join(b.Snapshot(t.Context(), f), f.Close())
	})
	if err := storage.Restore(file, filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	written("etcd", func(*storage.Backend) error { return nil })
	// Room for what comes next, which is made again.
	room, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(room, filepath.Join(dir, "etcd", "reserve")) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "etcd")
}

// tree is what is in a directory.
func tree(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	files := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = sha256.Sum256(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// begin does what a server does before it opens its store.
func begin(t *testing.T, config Config) error {
	t.Helper()
	if err := config.joinOrInit(t.Context()); err != nil {
		return err
	}
	return config.checkKeys()
}

// TestPartialRestore: a server whose data directory lacks one of the files that nobody
// makes again, or has it empty or damaged, names the file, says what to do and changes
// nothing, whatever flags it is started with.
func TestPartialRestore(t *testing.T) {
	config := dataDirectory(t)
	first := config
	first.ClusterInit = true
	if err := begin(t, config); err != nil {
		t.Fatalf("with all its files: %v", err)
	}
	files := []string{"server.json"}
	for _, name := range sharedFiles {
		files = append(files, "pki/"+name)
	}
	for name := range tree(t, config.etcdDir()) {
		files = append(files, filepath.Join("etcd", name))
	}
	for _, file := range files {
		path := filepath.Join(config.DataDir, file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		base := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		if strings.HasSuffix(file, ".wal") {
			base = "wal" // of a log that is gone altogether
		}
		half := content[:len(bytes.TrimRight(content, "\x00"))/2]
		for how, data := range map[string][]byte{"missing": nil, "empty": {}, "truncated": half, "damaged": bytes.Repeat([]byte("#"), len(content))} {
			err := os.Remove(path)
			if data != nil {
				err = os.WriteFile(path, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := tree(t, config.DataDir)
			for _, c := range []Config{config, first} {
				err := begin(t, c)
				if err == nil {
					t.Errorf("%s %s: the server starts", file, how)
					continue
				}
				if said := err.Error(); !strings.Contains(said, base) || !strings.Contains(said, "restore") || !strings.Contains(said, "(nothing was changed)") {
					t.Errorf("%s %s: the server says %q", file, how, said)
				}
				if !maps.Equal(before, tree(t, config.DataDir)) {
					t.Errorf("%s %s: the server changed files", file, how)
				}
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := begin(t, config); err != nil {
		t.Errorf("with all files back: %v", err)
	}
}

// TestKeysOfOthers: a key and a certificate that don't belong together are refused, and so
// is a store without its log.
func TestKeysOfOthers(t *testing.T) {
	config, other := dataDirectory(t), dataDirectory(t)
	for _, name := range slices.DeleteFunc(slices.Clone(sharedFiles), func(name string) bool { return filepath.Ext(name) != ".crt" }) {
		path := filepath.Join(config.DataDir, "pki", name)
		own, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := os.ReadFile(filepath.Join(other.DataDir, "pki", name))
		if err == nil {
			err = os.WriteFile(path, foreign, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := begin(t, config); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "its key is another one's") {
			t.Errorf("%s of another cluster: %v", name, err)
		}
		if err := os.WriteFile(path, own, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(config.etcdDir(), "member", "wal")); err != nil {
		t.Fatal(err)
	}
	if err := begin(t, config); err == nil || !strings.Contains(err.Error(), "restore both from a backup") {
		t.Errorf("a store without its log: %v", err)
	}
}
