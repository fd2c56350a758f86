package agent

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
			e := newEvents(fake.NewClientset(), fmt.Sprintf("node%d", i), slog.New(slog.DiscardHandler))
			e.nodes, e.counted = nodes, time.Now()
			for s := range 10 {
				n := notice{service: types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("web%d", s)}, reason: reasonUnsupported, message: "none here", local: local}
				if e.speaksFor(t.Context(), n) {
					spoken[n.service.Name]++
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
	e := newEvents(client, "node", slog.New(slog.DiscardHandler))
	for range 3 {
		e.speaksFor(t.Context(), notice{service: types.NamespacedName{Namespace: "default", Name: "web"}})
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
		e := newEvents(client, "node", slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.run(ctx) }()
		for i := range 200 {
			e.ReportNode(reasonLeftOut, fmt.Sprint(i))
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
