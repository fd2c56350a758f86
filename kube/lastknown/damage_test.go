package lastknown

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// filled is a file as an agent leaves it behind, and its states from the first to the last.
func filled(t *testing.T) (content []byte, states []map[string]string) {
	t.Helper()
	dir := t.TempDir()
	var s seen
	store, k := open(t, dir, &s)
	for i := range 30 {
		k.set(service(fmt.Sprint("s", i), fmt.Sprint("10.96.0.", i)))
	}
	k.complete()
	states = append(states, maps.Clone(s.addresses))
	changed := func() {
		if err := store.flush(); err != nil {
			t.Fatal(err)
		}
		states = append(states, maps.Clone(s.addresses))
	}
	for i := range 10 {
		k.set(service(fmt.Sprint("s", i), fmt.Sprint("10.96.1.", i)))
		changed()
		k.delete(types.NamespacedName{Namespace: "default", Name: fmt.Sprint("s", 20+i)})
		changed()
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(File(dir, "n1"))
	if err != nil {
		t.Fatal(err)
	}
	return content, states
}

// startsWith starts with a file, and returns what is restored; nil if nothing is.
func startsWith(t *testing.T, content []byte) (restored map[string]string, said string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(File(dir, "n1"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	store, err := Open(dir, "n1", log)
	if err != nil {
		t.Fatalf("it doesn't start: %v", err)
	}
	var s seen
	k := newKeeper(store, "services", s.sink(), func() *corev1.Service { return &corev1.Service{} }, log)
	k.restore()
	if s.synced > 0 {
		restored = maps.Clone(s.addresses)
	}
	// It serves, and keeps what it serves.
	k.set(service("new", "10.96.9.9"))
	k.complete()
	if err := store.Close(); err != nil {
		t.Fatalf("it doesn't save: %v", err)
	}
	var next seen
	store, k = open(t, dir, &next)
	k.restore()
	if next.addresses["new"] != "10.96.9.9" || len(next.addresses) != 1 {
		t.Errorf("the start after that has %v", next.addresses)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return restored, out.String()
}

// isOneOf reports whether restored is nothing, or a state that was.
func isOneOf(restored map[string]string, states []map[string]string) bool {
	if restored == nil {
		return true
	}
	for _, s := range states {
		if maps.Equal(s, restored) {
			return true
		}
	}
	return false
}

// TestDamagedFile: with any byte of the file another, an agent starts and serves, with
// what was known at some time or with nothing, and says so once.
func TestDamagedFile(t *testing.T) {
	content, states := filled(t)
	if restored, said := startsWith(t, content); !maps.Equal(restored, states[len(states)-1]) || strings.Contains(said, "WARN") {
		t.Fatalf("a sound file: %v, %s", restored, said)
	}
	for i := 0; i < len(content); i += 1 + i%37 {
		flipped := bytes.Clone(content)
		flipped[i] ^= byte(1 << (i % 8))
		restored, said := startsWith(t, flipped)
		if !isOneOf(restored, states) {
			t.Fatalf("byte %d of %d is another: serves %v, which never was", i, len(content), restored)
		}
		if strings.Count(said, "level=WARN") > 1 || restored == nil && !strings.Contains(said, "damaged") {
			t.Fatalf("byte %d is another: %s", i, said)
		}
	}
}

// TestTornFile: a file that ends anywhere, or in zeros, is what was known at some time.
func TestTornFile(t *testing.T) {
	content, states := filled(t)
	for i := len(magic); i <= len(content); i += 23 {
		for _, tail := range [][]byte{nil, make([]byte, 5000)} {
			restored, said := startsWith(t, append(bytes.Clone(content[:i]), tail...))
			if len(tail) == 0 && strings.Contains(said, "WARN") {
				t.Fatalf("cut off at %d: %s", i, said)
			}
			if !isOneOf(restored, states) && len(restored) > 0 {
				// A list is complete from its last record on; changes after it come one by one.
				t.Fatalf("cut off at %d of %d: serves %v, which never was", i, len(content), restored)
			}
		}
	}
	if restored, _ := startsWith(t, nil); restored != nil {
		t.Errorf("an empty file has %v", restored)
	}
	if restored, _ := startsWith(t, bytes.Repeat([]byte("garbage"), 10_000)); restored != nil {
		t.Errorf("a file of something else has %v", restored)
	}
}

// TestLongListIsWrittenOnce: while objects come that the file doesn't have, there is nothing of the
// past in it; so it isn't written anew, neither then nor at the first change after a start.
func TestLongListIsWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	var s, next seen
	store, k := open(t, dir, &s)
	begun, err := os.Stat(File(dir, "n1"))
	if err != nil {
		t.Fatal(err)
	}
	list := func(k *keeper[*corev1.Service]) {
		for i := range 4000 {
			o := service(fmt.Sprint("s", i), "10.96.0.1")
			o.Annotations = map[string]string{"filler": strings.Repeat("x", 1000)}
			k.set(o)
		}
		k.complete()
	}
	list(k)
	closed(t, store)
	store, k = open(t, dir, &next)
	list(k)
	k.set(service("s7", "10.96.0.2"))
	closed(t, store)
	if now, err := os.Stat(File(dir, "n1")); err != nil || now.Size() < 3*smallFile || !os.SameFile(begun, now) {
		t.Errorf("the file of %d bytes was written anew (%v)", now.Size(), err)
	}
}

// TestWrittenAnew: many changes of few objects leave a small file, with the same content.
func TestWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	var s, next seen
	store, k := open(t, dir, &s)
	k.set(service("a", "10.96.0.1"))
	k.set(service("gone", "10.96.0.2"))
	k.complete()
	k.delete(types.NamespacedName{Namespace: "default", Name: "gone"})
	for i := range 3000 {
		o := service("b", fmt.Sprint("10.96.0.", i%250))
		o.Annotations = map[string]string{"filler": strings.Repeat("x", 2000)}
		k.set(o)
		if err := store.flush(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(File(dir, "n1"))
	if err != nil || info.Size() > 2*smallFile {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store, k = open(t, dir, &next)
	k.restore()
	if !maps.Equal(next.addresses, s.addresses) || len(next.addresses) != 2 {
		t.Errorf("%v, want %v", next.addresses, s.addresses)
	}
	if _, err := Open(dir, "n1", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("two agents have the file")
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestFailedWrite: a list of which a part could not be written isn't served as the whole. The
// next list is.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	var s seen
	store, k := open(t, dir, &s)
	list := func(between func()) {
		k.set(service("a", "10.96.0.1"))
		between()
		k.set(service("b", "10.96.0.2"))
		k.complete()
	}
	served := func() map[string]string {
		t.Helper()
		content, err := os.ReadFile(File(dir, "n1"))
		if err != nil {
			t.Fatal(err)
		}
		restored, _ := startsWith(t, content)
		return restored
	}
	list(func() { // as where the disk is full
		hold := File(dir, "n1") + ".hold"
		if err := os.Rename(File(dir, "n1"), hold); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(File(dir, "n1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := store.flush(); err == nil {
			t.Error("a write to a directory succeeded")
		}
		if err := os.Remove(File(dir, "n1")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(hold, File(dir, "n1")); err != nil {
			t.Fatal(err)
		}
	})
	if got := served(); got != nil {
		t.Errorf("of a part of a list, served %v", got)
	}
	list(func() {})
	if got := served(); len(got) != 2 {
		t.Errorf("of a whole list, served %v", got)
	}
	closed(t, store)
}
