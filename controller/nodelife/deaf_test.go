package nodelife

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairway-net/fairway/controller/cluster"
)

// TestDeaf: while the API takes no writes, no machine falls silent, nor in the moment
// that it does again; one that stays silent then does after the usual time.
func TestDeaf(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	var full atomic.Bool
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return full.Load() && a.GetVerb() != "get" && a.GetVerb() != "list" && a.GetVerb() != "watch", nil, errors.New("disk full")
	})
	cache, err := cluster.New(client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cache.Stop()
	defer cancel()
	if err := cache.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := New(cache, 10*time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Unix(1000, 0)
	c.now = func() time.Time { return clock }
	renewed := map[string]time.Time{"n1": clock}
	pass := func(d time.Duration) {
		t.Helper()
		for range d / time.Second {
			if err := c.look(t.Context(), renewed); err != nil {
				t.Fatal(err)
			}
			clock = clock.Add(time.Second)
		}
	}
	marked := func() bool {
		t.Helper()
		node, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return isSilent(node)
	}
	pass(3 * time.Second)
	full.Store(true)
	pass(47 * time.Second)
	full.Store(false)
	pass(8 * time.Second)
	if marked() {
		t.Error("a machine that couldn't be heard is marked as silent")
	}
	pass(5 * time.Second)
	if !marked() {
		t.Error("a machine that isn't heard for thirteen seconds isn't marked as silent")
	}
}
