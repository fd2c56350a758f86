package addresses

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/controller/cluster"
)

// TestKey: a key is made again when it is deleted; in a rotation the former one stays for a
// while; a node that is deleted has it replaced, one replacement after the other.
func TestKey(t *testing.T) {
	client := fake.NewClientset()
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	c := &Controller{options: Options{Namespace: "n"}, cluster: &cluster.Cache{Client: client, Nodes: corelisters.NewNodeLister(nodes)}, log: slog.New(slog.DiscardHandler)}
	secrets := client.CoreV1().Secrets("n")
	var k rotation
	now := time.Unix(1e9, 0)
	look := func(after time.Duration) (key, former string) {
		t.Helper()
		now = now.Add(after)
		if err := c.lookAtKey(t.Context(), &k, now); err != nil {
			t.Fatal(err)
		}
		s, err := secrets.Get(t.Context(), announce.KeySecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(s.Data[announce.KeyField]), string(s.Data[announce.PreviousKeyField])
	}
	first, _ := look(0)
	if again, former := look(time.Hour); len(first) != 32 || again != first || former != "" {
		t.Errorf("a key of %d bytes is replaced for no reason", len(first))
	}
	if err := secrets.Delete(t.Context(), announce.KeySecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second, _ := look(keyCheckInterval)
	if len(second) != 32 || second == first {
		t.Error("a deleted key isn't made again")
	}
	c.nodeChanged(&corev1.Node{}, nil)
	c.nodeChanged(&corev1.Node{}, nil)
	third, former := look(keyCheckInterval)
	if third == second || former != second {
		t.Error("a node was deleted, and the key isn't replaced, or the former one isn't kept")
	}
	c.nodeChanged(&corev1.Node{}, nil)
	if key, former := look(keepFormerFor - 1); key != third || former != second {
		t.Error("a rotation goes on, and the key is replaced")
	}
	look(0)
	if key, former := look(keepFormerFor); key != third || former != "" {
		t.Error("the former key is kept for ever")
	}
	fourth, former := look(keyCheckInterval)
	if fourth == third || former != third {
		t.Error("the node that was deleted meanwhile is forgotten")
	}
	if err := RotateKey(t.Context(), client, "n", false); err != nil {
		t.Fatal(err)
	}
	if key, former := look(0); key == fourth || former != "" {
		t.Error("a key that somebody knows who must not is kept")
	}
}

// TestDeletedNodesAreNamed: the Secret names a node that was deleted at once, also while a rotation
// goes on and after the controller was replaced, until the node is there again.
func TestDeletedNodesAreNamed(t *testing.T) {
	client := fake.NewClientset()
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	controller := func() *Controller {
		return &Controller{options: Options{Namespace: "n"}, cluster: &cluster.Cache{Client: client, Nodes: corelisters.NewNodeLister(nodes)}, log: slog.New(slog.DiscardHandler)}
	}
	c, now := controller(), time.Unix(1e9, 0)
	var k rotation
	expect := func(what, want string) {
		t.Helper()
		now = now.Add(time.Second)
		if err := c.lookAtKey(t.Context(), &k, now); err != nil {
			t.Fatal(err)
		}
		s, err := client.CoreV1().Secrets("n").Get(t.Context(), announce.KeySecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(s.Data[announce.OutField]); got != want {
			t.Errorf("%s: %q are named, want %q", what, got, want)
		}
	}
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	expect("at first", "")
	c.nodeChanged(node("a"), nil)
	expect("one is deleted", "a")
	c.nodeChanged(node("b"), nil)
	c.nodeChanged(node("a"), nil)
	expect("another one, while the key is rotated", "a\nb")
	c = controller()
	expect("by the next controller", "a\nb")
	if err := nodes.Add(node("a")); err != nil {
		t.Fatal(err)
	}
	c.nodeChanged(nil, node("a"))
	expect("one is back", "b")
}
