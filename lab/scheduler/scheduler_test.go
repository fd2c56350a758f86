package scheduler

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(name, owner, node string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{{UID: types.UID(owner), Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
}

func TestChoose(t *testing.T) {
	gone := pod("gone", "x", "node1")
	gone.DeletionTimestamp = &metav1.Time{}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	notReady := func(n *corev1.Node) { n.Status.Conditions = nil }
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	}
	selects := pod("p", "x", "")
	selects.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node2"}
	tolerates := pod("p", "x", "")
	tolerates.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}

	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		nodes []*corev1.Node
		pods  []*corev1.Pod
		want  string
	}{
		{"empty nodes in order of names", pod("p", "x", ""), []*corev1.Node{node("node2"), node("node1")}, nil, "node1"},
		{"fewest pods", pod("p", "x", ""), []*corev1.Node{node("node1"), node("node2")}, []*corev1.Pod{pod("a", "y", "node1")}, "node2"},
		{"siblings weigh more", pod("p", "x", ""), []*corev1.Node{node("node1"), node("node2")},
			[]*corev1.Pod{pod("a", "x", "node1"), pod("b", "y", "node2"), pod("c", "y", "node2")}, "node2"},
		{"terminating pods don't count", pod("p", "x", ""), []*corev1.Node{node("node1"), node("node2")}, []*corev1.Pod{gone}, "node1"},
		{"node selector", selects, []*corev1.Node{node("node1"), node("node2")}, nil, "node2"},
		{"cordoned", pod("p", "x", ""), []*corev1.Node{node("node1", cordoned), node("node2")}, nil, "node2"},
		{"not ready", pod("p", "x", ""), []*corev1.Node{node("node1", notReady), node("node2")}, nil, "node2"},
		{"taint", pod("p", "x", ""), []*corev1.Node{node("node1", tainted), node("node2")}, nil, "node2"},
		{"toleration", tolerates, []*corev1.Node{node("node1", tainted), node("node2")}, nil, "node1"},
		{"none", pod("p", "x", ""), []*corev1.Node{node("node1", cordoned), node("node2", tainted), node("node3", cordoned)}, nil,
			"error: 0/3 nodes are available: 1 node(s) had untolerated taint {k: v}, 2 node(s) were unschedulable."},
		{"no nodes", pod("p", "x", ""), nil, nil, "error: 0/0 nodes are available."},
	} {
		got, err := choose(c.pod, c.nodes, c.pods, func(p *corev1.Pod) string { return p.Spec.NodeName })
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// binding makes a fake clientset store what is bound, as the API server does.
func binding(client *fake.Clientset) {
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := action.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		gvr := corev1.SchemeGroupVersion.WithResource("pods")
		o, err := client.Tracker().Get(gvr, b.Namespace, b.Name)
		if err != nil {
			return true, nil, err
		}
		p := o.(*corev1.Pod).DeepCopy()
		p.Spec.NodeName = b.Target.Name
		return true, b, client.Tracker().Update(gvr, p, b.Namespace)
	})
}

func TestScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := fake.NewClientset(node("node1"), node("node2"))
		binding(client)
		factory := informers.NewSharedInformerFactory(client, 0)
		s, err := New(client, factory, &record.FakeRecorder{})
		if err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		for i := range 9 {
			if _, err := client.CoreV1().Pods("default").Create(ctx, pod(fmt.Sprint("p", i), "x", ""), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		lonely := pod("lonely", "y", "")
		lonely.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node3"}
		if _, err := client.CoreV1().Pods("default").Create(ctx, lonely, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if got, want := placed(t, client), map[string]int{"": 1, "node1": 5, "node2": 4}; !maps.Equal(got, want) {
			t.Errorf("pods by node: %v, want %v", got, want)
		}
		waiting, err := client.CoreV1().Pods("default").Get(ctx, "lonely", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c := waiting.Status.Conditions; len(c) != 1 || c[0].Reason != "Unschedulable" || !strings.Contains(c[0].Message, "0/2 nodes") {
			t.Errorf("conditions of a pod that fits nowhere: %v", c)
		}
		if _, err := client.CoreV1().Nodes().Create(ctx, node("node3"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if got, want := placed(t, client), map[string]int{"node1": 5, "node2": 4, "node3": 1}; !maps.Equal(got, want) {
			t.Errorf("pods by node, after a node was added: %v, want %v", got, want)
		}
		cancel()
		<-done
		factory.Shutdown()
	})
}

func placed(t *testing.T, client *fake.Clientset) map[string]int {
	t.Helper()
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]int{}
	for _, p := range pods.Items {
		nodes[p.Spec.NodeName]++
	}
	return nodes
}

// settle lets a minute of the bubble's time pass, with all that comes of it.
func settle() {
	time.Sleep(time.Minute) // the bubble's time
	synctest.Wait()
}
