package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// TestStreamIsNotHeld: of objects that stream in, the reflector's own store
// keeps names, and the sink has each as soon as it came. What went during the
// stream, and what is not in it, is deleted with its end.
func TestStreamIsNotHeld(t *testing.T) {
	var got []string
	store := &passThrough[*corev1.Service]{keys: map[types.NamespacedName]struct{}{}, sink: Sink[*corev1.Service]{
		Set:    func(s *corev1.Service) { got = append(got, "set "+s.Name) },
		Delete: func(n types.NamespacedName) { got = append(got, "delete "+n.Name) },
		Synced: func() { got = append(got, "synced") },
	}}
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("the sink was told %q, want %q", got, want)
		}
		got = nil
	}
	add := func(to interface{ Add(any) error }, names ...string) {
		t.Helper()
		for _, name := range names {
			if err := to.Add(service(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(store, "before")
	expect("set before")

	reflectors := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.WithTransformer(store.Transformer()))
	add(reflectors, "a", "b", "went")
	expect("set a", "set b", "set went")
	if err := reflectors.Delete(service("went")); err != nil {
		t.Fatal(err)
	}
	for _, held := range reflectors.List() {
		if _, isService := held.(*corev1.Service); isService {
			t.Errorf("the reflector holds %v", held)
		}
	}
	if err := store.Replace(reflectors.List(), "7"); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	expect("delete before", "delete went", "synced")
	if err := store.Replace([]any{service("b"), service("c")}, "8"); err != nil { // a list that came whole
		t.Fatal(err)
	}
	expect("set b", "set c", "delete a", "synced")
}

// TestListFails: what is gone is deleted with the next list where one couldn't be read to its end.
func TestListFails(t *testing.T) {
	known := map[string]bool{}
	store := &passThrough[*corev1.Service]{keys: map[types.NamespacedName]struct{}{}, sink: Sink[*corev1.Service]{
		Set:    func(s *corev1.Service) { known[s.Name] = true },
		Delete: func(n types.NamespacedName) { delete(known, n.Name) },
		Synced: func() {},
	}}
	if err := store.Replace([]any{service("a"), service("b")}, "1"); err != nil {
		t.Fatal(err)
	}
	if err := store.Replace([]any{service("c"), "no object", service("b")}, "2"); err == nil {
		t.Error("a list with something else is taken")
	}
	if err := store.Replace([]any{service("d")}, "3"); err != nil {
		t.Fatal(err)
	}
	if len(known) != 1 || !known["d"] {
		t.Errorf("the sink knows %v, expected d", known)
	}
}
