package notices

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// TestSomeNodesSpeakForAll: with ten Services that a mode lacks something for, a cluster
// of a thousand nodes makes requests in tens, and not in thousands; in a small one all
// speak, and what is so on a node only is told by that node.
func TestSomeNodesSpeakForAll(t *testing.T) {
	count := func(nodes int, local bool) (spoken map[string]int) {
		spoken = map[string]int{}
		for i := range nodes {
			e := New(fake.NewClientset(), fmt.Sprintf("node%d", i), slog.New(slog.DiscardHandler))
			e.nodes, e.counted = nodes, time.Now()
			for s := range 10 {
				n := Notice{Service: types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("web%d", s)}, Reason: "UnsupportedByMode", Message: "none here", Local: local}
				if e.speaksFor(t.Context(), n) {
					spoken[n.Service.Name]++
				}
			}
		}
		return spoken
	}
	spoken := count(1000, false)
	if len(spoken) != 10 {
		t.Errorf("of %d Services some node speaks, want 10", len(spoken))
	}
	for name, n := range spoken {
		if n > 5*speakers {
			t.Errorf("%d of 1000 nodes speak of Service %s", n, name)
		}
	}
	for name, n := range count(3, false) {
		if n != 3 {
			t.Errorf("%d of 3 nodes speak of Service %s", n, name)
		}
	}
	for name, n := range count(1000, true) {
		if n != 1000 {
			t.Errorf("%d of 1000 nodes tell what is so on each of them, of Service %s", n, name)
		}
	}
}

// TestNodesAreCounted: by one request for one of them.
func TestNodesAreCounted(t *testing.T) {
	client := fake.NewClientset()
	requests := 0
	client.PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		requests++
		others := int64(4999)
		return true, &corev1.NodeList{ListMeta: metav1.ListMeta{RemainingItemCount: &others}, Items: make([]corev1.Node, 1)}, nil
	})
	e := New(client, "node", slog.New(slog.DiscardHandler))
	for range 3 {
		e.speaksFor(t.Context(), Notice{Service: types.NamespacedName{Namespace: "default", Name: "web"}})
	}
	if e.nodes != 5000 || requests != 1 {
		t.Errorf("%d nodes, by %d requests", e.nodes, requests)
	}
}

// TestEventsArePaced: a node with much to tell writes one Event a second.
func TestEventsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var written atomic.Int32
		client.PrependReactor("create", "events", func(k8stesting.Action) (bool, runtime.Object, error) {
			written.Add(1)
			return true, &corev1.Event{}, nil
		})
		e := New(client, "node", slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		for i := range 200 {
			e.ReportNode("LeftOut", fmt.Sprint(i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := written.Load(); n < 60 || n > 60+eventBurst+1 {
			t.Errorf("%d Events in a minute", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := written.Load(); n != 200 {
			t.Errorf("%d Events in the end, want all 200", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestNodesAgreeOnOneEvent: however many nodes find the same, the Service gets
// one Event.
func TestNodesAgreeOnOneEvent(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	client := fake.NewClientset(service)
	for _, node := range []string{"node1", "node2", "node3"} {
		e := New(client, node, slog.New(slog.DiscardHandler))
		if err := e.write(t.Context(), Notice{Service: types.NamespacedName{Namespace: "default", Name: "web"}, Reason: "UnsupportedByMode", Message: "scheduler mh: none here"}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].InvolvedObject.UID != "1" || list.Items[0].Reason != "UnsupportedByMode" {
		t.Errorf("Events: %+v", list.Items)
	}
}
