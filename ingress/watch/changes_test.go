package watch

import (
	"log/slog"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestTakenIsNoChange: who has taken what happened is not told of it once more. A storm of
// changes had the controller go through all Services for every other one of them, finding
// nothing.
func TestTakenIsNoChange(t *testing.T) {
	w := NewFor(fake.NewClientset(), nil, slog.New(slog.DiscardHandler))
	happen := func(name string) {
		w.happened(nil, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	for i := range 10 {
		happen("first" + strconv.Itoa(i))
		<-w.Changed()
		happen("second" + strconv.Itoa(i)) // while changes gather
		if changes := w.Take(); len(changes.Services) != 2 {
			t.Fatalf("%d Services have changed, want 2", len(changes.Services))
		}
		select {
		case <-w.Changed():
			t.Fatal("something has changed, though all is taken")
		default:
		}
	}
	happen("later")
	select {
	case <-w.Changed():
	default:
		t.Error("a change after that isn't told")
	}
}
