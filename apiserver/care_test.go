package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver/storage"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}
}

// TestStopsDespiteWatches: a server that somebody watches ends at once, and the
// watch with it.
func TestStopsDespiteWatches(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	watch, err := client(t, s).CoreV1().Services("").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second): // the library's own limit is a minute
		t.Fatal("the server waits for the watch")
	}
	for range watch.ResultChan() { // ends
	}
}

// TestSecretsAreEncrypted: what is stored of a Secret doesn't show it, what was
// stored in the clear is read, and a rewrite encrypts it.
func TestSecretsAreEncrypted(t *testing.T) {
	s := sharedServer(t)
	ctx, c := within(t), client(t, s)
	secrets := c.CoreV1().Secrets(metav1.NamespaceDefault)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"password": "hunter2"}}
	if _, err := secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := func(name string) []byte {
		t.Helper()
		resp, err := s.backend.Client.Client.Get(ctx, "/registry/"+name)
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("get %s: %v", name, err)
		}
		return resp.Kvs[0].Value
	}
	if value := stored("secrets/default/s"); bytes.Contains(value, []byte("hunter2")) || !bytes.HasPrefix(value, []byte("fairway:enc:")) {
		t.Errorf("stored as %q", value)
	}
	// As earlier versions wrote it.
	if _, err := c.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap("clear"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if value := stored("configmaps/default/clear"); !bytes.HasPrefix(value, []byte("k8s\x00")) {
		t.Errorf("ConfigMap stored as %q", value)
	}
	got, err := secrets.Get(ctx, "s", metav1.GetOptions{})
	if err != nil || string(got.Data["password"]) != "hunter2" {
		t.Errorf("read %v, %v", got.Data, err)
	}
	if info, err := os.Stat(EncryptionKeys(s.config.DataDir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("keys: %v, %v", info, err)
	}
}

// TestSnapshot: what a snapshot has is there after it was restored, and nothing
// that came later is.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	s := start(t, c)
	create := func(s *Server, name string) {
		t.Helper()
		if _, err := client(t, s).CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(within(t), configMap(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(s, "before")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := WriteSnapshot(file, func(w io.Writer) error { return s.backend.Snapshot(t.Context(), w) }); err != nil {
		t.Fatal(err)
	}
	create(s, "after")
	if status, err := storage.ReadSnapshot(file); err != nil || status.TotalKey == 0 {
		t.Fatalf("status %+v, %v", status, err)
	}
	if err := storage.Restore(file, filepath.Join(c.DataDir, "etcd")); err == nil || !strings.Contains(err.Error(), "it exists") {
		t.Errorf("restored over a store in use: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(c.DataDir, "etcd"), filepath.Join(c.DataDir, "old")); err != nil {
		t.Fatal(err)
	}
	if err := storage.Restore(file, filepath.Join(c.DataDir, "etcd")); err != nil {
		t.Fatal(err)
	}
	again := start(t, c)
	maps := client(t, again).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if _, err := maps.Get(within(t), "before", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := maps.Get(within(t), "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what came after the snapshot: %v", err)
	}
	create(again, "later")
	for n := range 4 {
		if err := again.takeSnapshot(t.Context(), time.Now().Add(time.Duration(n)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := dropSnapshots(SnapshotDir(c.DataDir), 2); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(SnapshotDir(c.DataDir)); err != nil || len(left) != 2 {
		t.Errorf("%v snapshots kept, want 2: %v", left, err)
	}
}

// TestFullDisk: with a full disk objects can be read and deleted, writes are
// refused with the sizes, and all is well again when there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c := testConfig(t)
	c.DataDir = filepath.Join(dir, "data")
	s := start(t, c)
	maps := client(t, s).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	create := func(name string) error {
		_, err := maps.Create(within(t), configMap(name), metav1.CreateOptions{})
		return err
	}
	if err := create("before"); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	fillDisk(t, filler)
	eventually(t, "that writes are refused", func() bool { return create(fmt.Sprint("x", time.Now().UnixNano())) != nil })
	if err := create("refused"); err == nil || !strings.Contains(err.Error(), "disk full: "+c.DataDir) {
		t.Errorf("write to a full disk: %v", err)
	}
	if err := create("before"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create what is there: %v", err)
	}
	if _, err := maps.List(within(t), metav1.ListOptions{}); err != nil {
		t.Errorf("list with a full disk: %v", err)
	}
	if err := maps.Delete(within(t), "before", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete with a full disk: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(c.DataDir, "etcd", "reserve")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	fillDisk(t, filepath.Join(dir, "rest"))
	if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "disk full: "+c.DataDir) {
		t.Errorf("start on a full disk: %v", err)
	}
	for _, name := range []string{filler, filepath.Join(dir, "rest")} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	s = start(t, c)
	maps = client(t, s).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	fillDisk(t, filler)
	if err := create("refused-again"); err == nil {
		t.Error("write to a full disk")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that writes go on", func() bool { return create("after") == nil })
}

func fillDisk(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestHealthKnowsEtcd: without etcd the server is not healthy.
func TestHealthKnowsEtcd(t *testing.T) {
	t.Parallel()
	s := start(t, testConfig(t))
	for _, path := range []string{"/readyz", "/livez", "/healthz"} {
		contains(t, kubectl(t, s, "", "get", "--raw", path+"?verbose"), "[+]etcd ok")
	}
	if err := s.backend.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := rest.HTTPClientFor(s.loopback)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := h.Get(s.URL() + "/readyz"); err != nil || resp.StatusCode == http.StatusOK {
		t.Errorf("ready without etcd: %v, %v", resp, err)
	}
}

// TestAudit: requests that the policy names are written down.
func TestAudit(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	policy := filepath.Join(c.DataDir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, resources: [{group: \"\", resources: [configmaps]}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Audit.PolicyFile, c.Audit.LogPath = policy, filepath.Join(c.DataDir, "audit.log")
	s := start(t, c)
	if _, err := client(t, s).CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(within(t), configMap("audited"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the request is in the audit log", func() bool {
		log, err := os.ReadFile(c.Audit.LogPath)
		return err == nil && bytes.Contains(log, []byte(`"name":"audited"`)) && !bytes.Contains(log, []byte(`"services"`))
	})
}

// TestUserLimits: a user who isn't an administrator can't write without end.
func TestUserLimits(t *testing.T) {
	t.Parallel()
	s := start(t, testConfig(t))
	kubeconfig, err := s.NodeKubeconfig("n1")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// What can't be read counts too, and takes no time: a slow machine would take
	// in Events more slowly than the limit asks.
	flood := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		err := c.CoreV1().RESTClient().Post().Namespace(metav1.NamespaceDefault).Resource("events").MaxRetries(0).
			SetHeader("Content-Type", runtime.ContentTypeJSON).Body(flood).Do(within(t)).Error()
		switch {
		case apierrors.IsTooManyRequests(err):
			return
		case !apierrors.IsBadRequest(err):
			t.Fatalf("a megabyte that is no Event: %v", err)
		}
	}
	t.Error("100 MiB were taken from one node at once")
}
