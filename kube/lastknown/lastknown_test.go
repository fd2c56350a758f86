package lastknown

import (
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/kube"
)

// seen is a sink that remembers.
type seen struct {
	addresses map[string]string
	synced    int
}

func (s *seen) sink() kube.Sink[*corev1.Service] {
	s.addresses = map[string]string{}
	return kube.Sink[*corev1.Service]{
		Set:    func(o *corev1.Service) { s.addresses[o.Name] = o.Spec.ClusterIP },
		Delete: func(n types.NamespacedName) { delete(s.addresses, n.Name) },
		Synced: func() { s.synced++ },
	}
}

func service(name, address string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: address}}
}

func open(t *testing.T, dir string, s *seen) (*Store, *keeper[*corev1.Service]) {
	t.Helper()
	store, err := Open(dir, "n1", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	return store, newKeeper(store, "services", s.sink(), func() *corev1.Service { return &corev1.Service{} }, log)
}

// TestRestore: what was known is served while the API is silent, and is
// corrected when it answers.
func TestRestore(t *testing.T) {
	dir := t.TempDir()
	var before, after seen
	store, k := open(t, dir, &before)
	k.restore()
	if before.synced != 0 {
		t.Error("nothing was known, and it was served")
	}
	k.set(service("a", "10.96.0.1"))
	k.set(service("b", "fd00:96::2"))
	k.set(service("gone", "10.96.0.3"))
	k.complete()
	k.delete(types.NamespacedName{Namespace: "default", Name: "gone"})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	store, k = open(t, dir, &after)
	k.restore()
	if want := map[string]string{"a": "10.96.0.1", "b": "fd00:96::2"}; !maps.Equal(after.addresses, want) || after.synced != 1 {
		t.Errorf("restored %v, synced %d times", after.addresses, after.synced)
	}
	k.set(service("b", "fd00:96::9"))
	k.set(service("c", "10.96.0.4"))
	k.complete()
	if names := slices.Sorted(maps.Keys(after.addresses)); !slices.Equal(names, []string{"b", "c"}) || after.addresses["b"] != "fd00:96::9" {
		t.Errorf("after the API has answered: %v", after.addresses)
	}
	k.restore()
	if after.synced != 2 {
		t.Error("restored although the API has answered")
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreInTheMiddle: where the API falls silent in the middle of a list, what it has
// told by then is newer than what is saved, and stays when it goes on.
func TestRestoreInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	var before, after seen
	store, k := open(t, dir, &before)
	k.set(service("a", "10.96.0.1"))
	k.set(service("b", "10.96.0.2"))
	k.complete()
	closed(t, store)
	store, k = open(t, dir, &after)
	k.set(service("a", "10.96.0.9"))
	k.restore()
	want := map[string]string{"a": "10.96.0.9", "b": "10.96.0.2"}
	if !maps.Equal(after.addresses, want) || after.synced != 1 {
		t.Errorf("restored %v, synced %d times", after.addresses, after.synced)
	}
	k.set(service("b", "10.96.0.2"))
	k.complete()
	if !maps.Equal(after.addresses, want) {
		t.Errorf("after the API has told everything: %v", after.addresses)
	}
	closed(t, store)
}

// TestPartOfAList: a process that ended in the middle of its first list leaves nothing
// that another one serves.
func TestPartOfAList(t *testing.T) {
	dir := t.TempDir()
	var before, after seen
	store, k := open(t, dir, &before)
	k.set(service("a", "10.96.0.1"))
	closed(t, store)
	store, k = open(t, dir, &after)
	if k.restore(); after.synced != 0 || len(after.addresses) != 0 {
		t.Errorf("part of a list is served: %v", after.addresses)
	}
	closed(t, store)
}

// TestGoneMeanwhile: what was deleted while no agent ran isn't served later.
func TestGoneMeanwhile(t *testing.T) {
	dir := t.TempDir()
	for _, list := range [][]string{{"a", "b"}, {"b"}} {
		var s seen
		store, k := open(t, dir, &s)
		for _, name := range list {
			k.set(service(name, "10.96.0.1"))
		}
		k.complete()
		closed(t, store)
	}
	var s seen
	store, k := open(t, dir, &s)
	if k.restore(); len(s.addresses) != 1 || s.synced != 1 {
		t.Errorf("served: %v", s.addresses)
	}
	closed(t, store)
}

// TestLongListIsNoSilence: a list that takes longer than the API may be silent isn't cut off.
func TestLongListIsNoSilence(t *testing.T) {
	var s seen
	store, k := open(t, t.TempDir(), &s)
	if left := k.silenceLeft(time.Now()); left > 0 {
		t.Errorf("an API that never answered has %s left", left)
	}
	k.set(service("a", "10.96.0.1"))
	if left := k.silenceLeft(time.Now()); left <= 0 {
		t.Error("the API has just told something, and is taken for silent")
	}
	if left := k.silenceLeft(time.Now().Add(silenceTimeout)); left > 0 {
		t.Errorf("an API that fell silent has %s left", left)
	}
	closed(t, store)
}

func closed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
