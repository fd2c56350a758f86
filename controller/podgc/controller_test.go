package podgc

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/kube/ownnode"
)

// TestLook: which Pods are deleted, and how.
func TestLook(t *testing.T) {
	now := time.Now()
	machine := func(name, kubelet string, annotations map[string]string, taints ...corev1.Taint) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: corev1.NodeSpec{Taints: taints}}
		n.Status.NodeInfo.KubeletVersion = kubelet
		return n
	}
	pod := func(name, node string, ending bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u"}, Spec: corev1.PodSpec{NodeName: node}}
		if ending {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: now}, []string{"example.com/keep"} // the fake refuses one without
		}
		return p
	}
	gone := corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoExecute}
	client := fake.NewClientset(
		machine("plain", "fairway-1.0", map[string]string{ownnode.ModeAnnotation: "nftables"}), machine("kubelet", "v1.36.0", nil), machine("bare", "", nil),
		machine("tainted", "v1.36.0", nil, gone),
		pod("plain", "plain", false), pod("plain-ending", "plain", true), pod("kubelet-ending", "kubelet", true), pod("bare-ending", "bare", true),
		pod("tainted", "tainted", false), pod("tainted-ending", "tainted", true), pod("lost", "gone", false), pod("lost-ending", "gone", true),
	)
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
	c, err := New(cache, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.now = func() time.Time { return now }
	look := func() []string {
		t.Helper()
		client.ClearActions()
		if err := c.look(ctx); err != nil {
			t.Fatal(err)
		}
		var deleted []string
		for _, a := range client.Actions() {
			if d, ok := a.(clienttesting.DeleteAction); ok {
				how := " in its time"
				if grace := d.GetDeleteOptions().GracePeriodSeconds; grace != nil && *grace == 0 {
					how = " at once"
				}
				deleted = append(deleted, d.GetName()+how)
			}
		}
		slices.Sort(deleted)
		return deleted
	}
	if got, want := look(), []string{"bare-ending at once", "lost-ending at once", "plain-ending at once", "tainted in its time"}; !slices.Equal(got, want) {
		t.Errorf("deleted %q, want %q", got, want)
	}
	now = now.Add(orphanTime + time.Second)
	if got := look(); !slices.Contains(got, "lost at once") || slices.Contains(got, "plain at once") {
		t.Errorf("deleted %q after a while, want the Pod of the node that never came and not that of the plain machine", got)
	}
}
