package controller_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/controller"
)

func TestBadOptions(t *testing.T) {
	for want, options := range map[string]controller.Options{
		`"node-controller"`: {Disable: []string{"node-controller"}},
		"lease namespace":   {Lease: &controller.Lease{Name: "fairway", Identity: "a"}},
		"lease identity":    {Lease: &controller.Lease{Namespace: "kube-system", Name: "fairway"}},
	} {
		err := controller.Run(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, options)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run returns %v, want something about %s", err, want)
		}
	}
}

func TestRunEndsWithoutAPI(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx, &rest.Config{Host: "http://127.0.0.1:1"}, controller.Options{}) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run returns %v after its context is done", err)
	}
}

// TestLeaseHandedOver starts two servers' controllers. The second begins when
// the first ends.
func TestLeaseHandedOver(t *testing.T) {
	client := fake.NewClientset()
	giveIdentity(client)
	r := &rig{T: t, client: client, ns: "default"}
	r.createNode(node("n1", "z1"))
	run := func(identity string) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		lease := &controller.Lease{Namespace: "kube-system", Name: "fairway", Identity: identity}
		go func() {
			done <- controller.RunClients(ctx, client, nil, controller.Options{Disable: fakeless(), Lease: lease})
		}()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run controllers %s: %v", identity, err)
			}
		}
	}
	stopFirst := run("first")
	r.awaitWatches(client, 1)
	stopSecond := run("second")
	defer stopSecond()
	r.createService(service("web", nil))
	r.expectEndpoints("web")
	found, err := r.slicesOf("web")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Errorf("%d empty EndpointSlices, want 1", len(found))
	}
	stopFirst()
	r.awaitWatches(client, 2)
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
}
