package lastknown

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

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
	store, err := Open(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	return store, &keeper[*corev1.Service]{
		store: store, resource: "services", sink: s.sink(), empty: func() *corev1.Service { return &corev1.Service{} },
		log: slog.New(slog.NewTextHandler(t.Output(), nil)), restored: map[types.NamespacedName]bool{},
	}
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
