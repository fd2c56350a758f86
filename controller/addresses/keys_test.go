package addresses

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/controller/cluster"
)

// TestKey: a key is made again when it is deleted; in a rotation the former one stays for a
// while; a node that is deleted has it replaced, one replacement after the other.
func TestKey(t *testing.T) {
	client := fake.NewClientset()
	c := &Controller{options: Options{Namespace: "n"}, cluster: &cluster.Cache{Client: client}, log: slog.New(slog.DiscardHandler)}
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
