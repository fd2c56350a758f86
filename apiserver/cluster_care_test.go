package apiserver

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/apiserver/storage"
)

// TestFullDiskOfOne: of two servers the leader's disk is full. It passes the lead
// on, says that it isn't ready, and refuses writes; the other one takes them.
func TestFullDiskOfOne(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c := newCluster(t)
	config := c.config(1)
	config.ClusterInit, config.DataDir = true, filepath.Join(dir, "data")
	one := start(t, config)
	two := start(t, c.joining(2, one, serverToken(t, one, time.Time{})))
	filler := filepath.Join(dir, "filler")
	fillDisk(t, filler)
	create := func(s *Server) error {
		m := configMap("")
		m.GenerateName = "m-"
		_, err := client(t, s).CoreV1().ConfigMaps("default").Create(within(t), m, metav1.CreateOptions{})
		return err
	}
	eventually(t, "that the server without room refuses writes", func() bool {
		err := create(one)
		return err != nil && strings.Contains(err.Error(), "disk full")
	})
	eventually(t, "that the other one leads", func() bool {
		for _, m := range two.backend.Members() {
			if m.Leader {
				return m.Name == "s2"
			}
		}
		return false
	})
	eventually(t, "that the other one takes writes", func() bool { return create(two) == nil })
	ready := func(s *Server) bool {
		return client(t, s).RESTClient().Get().AbsPath("/readyz").Do(within(t)).Error() == nil
	}
	eventually(t, "that the other one is ready", func() bool { return ready(two) })
	if ready(one) {
		t.Error("the server with a full disk says that it is ready")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that both are ready again", func() bool { return ready(one) && create(one) == nil })
}

// TestRestoreToCluster: a snapshot of a cluster begins a new one, which others
// join.
func TestRestoreToCluster(t *testing.T) {
	c := newCluster(t)
	config := c.config(1)
	config.ClusterInit = true
	old := start(t, config)
	if _, err := client(t, old).CoreV1().Services("default").Create(within(t), nodePortService("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := WriteSnapshot(file, func(w io.Writer) error { return old.backend.Snapshot(t.Context(), w) }); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(config.etcdDir()); err != nil {
		t.Fatal(err)
	}
	if err := storage.Restore(file, config.etcdDir()); err != nil {
		t.Fatal(err)
	}
	one := start(t, config)
	two := start(t, c.joining(2, one, serverToken(t, one, time.Time{})))
	if _, err := client(t, two).CoreV1().Services("default").Get(within(t), "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if list := members(t, two); len(list) != 2 {
		t.Errorf("servers of the new cluster: %v", list)
	}
}
