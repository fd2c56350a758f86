package speaker

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/link"
)

var keyFormat = link.Format[byte]{
	Magic: [4]byte{'T', 'E', 'S', 'T'}, Entries: 1, Write: func(e byte, b []byte) []byte { return append(b, e) },
	Read: func(b []byte) (byte, int) { return 0, min(len(b), 1) },
}

// TestKeys: keys are those of the Secret as it is now. One that it has no more is good for a
// moment, and what is foreign is told once.
func TestKeys(t *testing.T) {
	n := announcingTo(t, &notebook{})
	client := fake.NewClientset()
	n.client = client
	secrets := client.CoreV1().Secrets(n.namespace)
	var k keys
	if ok, err := n.readKeys(t.Context(), &k); ok || !apierrors.IsNotFound(err) {
		t.Errorf("without a Secret: %t, %v", ok, err)
	}
	understands := func(key string) bool {
		b, err := keyFormat.Marshal(&link.Message[byte]{Head: link.Head{Node: "x"}}, link.NewKeys([]byte(key)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = keyFormat.Unmarshal(b, n.cluster.Keys)
		return err == nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: announce.KeySecret, Namespace: n.namespace}}
	read := func(key, previous string, want ...string) {
		t.Helper()
		secret.Data = map[string][]byte{announce.KeyField: []byte(key), announce.PreviousKeyField: []byte(previous)}
		_ = client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), n.namespace, announce.KeySecret)
		if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.readKeys(t.Context(), &k); err != nil {
			t.Fatal(err)
		}
		for _, any := range []string{"1", "2", "3"} {
			if got := understands(any); got != slices.Contains(want, any) {
				t.Errorf("key %q, before %q: %q is understood: %t", key, previous, any, got)
			}
		}
	}
	read("1", "", "1")
	read("2", "1", "2", "1")
	k.formerUntil = time.Now()
	read("2", "", "2")
	read("3", "", "3", "2") // made again after it was deleted
	k.formerUntil = time.Now()
	read("3", "", "3")
	client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	if ok, err := n.readKeys(t.Context(), &k); !ok || err == nil || !understands("3") {
		t.Error("while the API is away, the last key is to be good")
	}
}

// TestOut: a machine that the API takes no more, or whose Node was deleted, announces nothing.
func TestOut(t *testing.T) {
	for what, test := range map[string]struct{ leave, comeBack func(n *Speaker) }{
		"refused": {
			func(n *Speaker) {
				var k keys
				for range mostRefused {
					n.noteRefusal(&k, true)
				}
			},
			func(n *Speaker) { n.noteRefusal(&keys{refused: mostRefused}, false) },
		},
		"no Node": {func(n *Speaker) { n.DeleteNode() }, func(n *Speaker) { n.SetNode(&corev1.Node{}, true) }},
		"drained": {
			func(n *Speaker) {
				n.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{announce.LabelDrained: ""}}}, true)
			},
			func(n *Speaker) { n.SetNode(&corev1.Node{}, true) },
		},
		"excluded, and that is ignored": {nil, func(n *Speaker) {
			n.options.IgnoreExcluded = true
			n.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelNodeExcludeBalancers: ""}}}, true)
		}},
	} {
		book := &notebook{}
		n := announcingTo(t, book)
		n.Intend(balanced(1, "192.0.2.1"))
		n.Applied(balanced(1, "192.0.2.1"), nil)
		if test.leave != nil {
			test.leave(n)
			n.decide()
			if len(book.routes) > 0 || n.status().Unfit == "" {
				t.Errorf("%s: announces %v", what, book.routes)
			}
		}
		test.comeBack(n)
		n.decide()
		if len(book.routes) == 0 {
			t.Errorf("%s: announces nothing when it is back", what)
		}
	}
}
