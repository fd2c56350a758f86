package apiserver

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// madeAnew are files that a server makes again, and that may therefore be lost.
var madeAnew = []string{"pki/serving.pem", "pki/peer.pem", "admin.kubeconfig", "service-cidrs", "lock", "api-servers.json"}

// tree is what is in a directory, but for the lock.
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

// TestPartialRestore: a server whose data directory lacks one of its files, or has it
// empty or damaged, names the file, says what to do and changes nothing; or it has made
// the file again and goes on with all that it had stored.
func TestPartialRestore(t *testing.T) {
	c := newCluster(t)
	config := c.config(1)
	config.ClusterInit = true
	first := start(t, config)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string][]byte{"a": []byte("b")}}
	if _, err := client(t, first).CoreV1().Secrets("default").Create(within(t), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	whole := tree(t, config.DataDir)
	refusedFiles := 0
	for file := range whole {
		path := filepath.Join(config.DataDir, file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(madeAnew, file) || strings.HasPrefix(file, "etcd/") || strings.HasPrefix(file, "snapshots/") {
			continue
		}
		refusedFiles++
		damaged := bytes.Repeat([]byte("#"), len(content))
		for how, data := range map[string][]byte{"missing": nil, "empty": {}, "damaged": damaged} {
			err := os.Remove(path)
			if data != nil {
				err = os.WriteFile(path, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := tree(t, config.DataDir)
			for _, again := range []bool{true, false} { // with the flags of the first start, and without
				c := config
				c.ClusterInit = again
				t.Run(strings.ReplaceAll(file, "/", "_")+"/"+how, func(t *testing.T) {
					base := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
					refused(t, c, base+".")
					refused(t, c, "(nothing was changed)")
				})
				after := tree(t, config.DataDir)
				for name := range after {
					if before[name] != after[name] {
						t.Errorf("%s %s: the server changed %s", file, how, name)
					}
				}
				if len(after) != len(before) {
					t.Errorf("%s %s: %d files after %d", file, how, len(after), len(before))
				}
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if refusedFiles != len(sharedFiles)+1 {
		t.Errorf("%d files were tried, want the keys and server.json; there are %v", refusedFiles, whole)
	}
	for _, file := range madeAnew {
		if err := os.RemoveAll(filepath.Join(config.DataDir, file)); err != nil {
			t.Fatal(err)
		}
	}
	again := start(t, config)
	kept, err := client(t, again).CoreV1().Secrets("default").Get(within(t), "kept", metav1.GetOptions{})
	if err != nil || string(kept.Data["a"]) != "b" {
		t.Errorf("with all files back: %v, %v", kept, err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(config.DataDir, "etcd", "member", "wal")); err != nil {
		t.Fatal(err)
	}
	refused(t, config, "restore both from a backup")
}
