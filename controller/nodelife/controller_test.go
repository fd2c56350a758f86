package nodelife

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/kube/ownnode"
)

// seen is what kubectl shows of a node, its Pods and its published endpoints.
func seen(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	ctx := t.Context()
	var words []string
	node, err := client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		words = append(words, fmt.Sprintf("node %s=%s", c.Type, c.Status))
	}
	for _, taint := range node.Spec.Taints {
		words = append(words, taint.Key+":"+string(taint.Effect))
	}
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			words = append(words, fmt.Sprintf("%s %s=%s", p.Name, c.Type, c.Status))
		}
	}
	slice, err := client.DiscoveryV1().EndpointSlices("default").Get(ctx, "published", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slice.Endpoints {
		words = append(words, fmt.Sprintf("%s %v", e.Addresses[0], e.Conditions.Ready == nil || *e.Conditions.Ready))
	}
	return strings.Join(words, ", ")
}

// TestSilent: a machine falls silent, is back, and falls silent again.
func TestSilent(t *testing.T) {
	pod := func(name, node string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	client := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "never"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "died", Annotations: map[string]string{ownnode.ModeAnnotation: "nftables"}}},
		pod("elsewhere", "n2", corev1.ConditionTrue), pod("ready", "n1", corev1.ConditionTrue), pod("waiting", "n1", corev1.ConditionFalse),
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "published"}, Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"192.0.2.1"}, NodeName: ptr.To("n1")}, {Addresses: []string{"192.0.2.2"}, NodeName: ptr.To("n2")},
		}},
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
	c, err := New(cache, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.now = func() time.Time { return now }
	renewed := map[string]time.Time{"n1": now.Add(-time.Hour)} // by its own clock
	const well = "node Ready=True, elsewhere Ready=True, ready Ready=True, waiting Ready=False, 192.0.2.1 true, 192.0.2.2 true"
	const silent = "node Ready=Unknown, node.kubernetes.io/unreachable:NoSchedule, node.kubernetes.io/unreachable:NoExecute, " +
		"elsewhere Ready=True, ready Ready=False, waiting Ready=False, 192.0.2.1 false, 192.0.2.2 true"
	expect := func(when, want string) {
		t.Helper()
		for late := range wait.Tries(time.Minute) { // the cache follows
			if err := c.look(ctx, renewed); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			got := seen(t, client)
			if got == want {
				return
			}
			if late {
				t.Fatalf("%s:\n%s, want\n%s", when, got, want)
			}
		}
	}
	expect("heard of for the first time", well)
	now = now.Add(DefaultGrace)
	expect("silent for a while", well)
	now = now.Add(time.Second)
	expect("silent", silent)
	for name, want := range map[string]int{"never": 0, "died": 2} {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(node.Spec.Taints) != want {
			t.Errorf("node %s, without a Lease: %v, %v, want %d taints", name, node.Spec.Taints, err, want)
		}
	}
	renewed["n1"] = renewed["n1"].Add(time.Second)
	expect("back", well)
	now = now.Add(DefaultGrace + time.Second)
	expect("silent again", silent)
}
