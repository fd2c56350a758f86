package namespace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/controller/cluster"
)

// world is an API in which Pods end when they are told to, and every tenth
// write fails.
type world struct {
	typed   *fake.Clientset
	objects *metadatafake.FakeMetadataClient

	mu      sync.Mutex
	podsEnd bool
	order   []string
}

func newWorld(t *testing.T) *world {
	w := &world{typed: fake.NewClientset(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "doomed", DeletionTimestamp: ptr.To(metav1.Now())},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/mine", corev1.FinalizerKubernetes}},
	})}
	server, ok := w.typed.Discovery().(*discoveryfake.FakeDiscovery)
	if !ok {
		t.Fatalf("discovery is a %T", w.typed.Discovery())
	}
	verbs := metav1.Verbs{"list", "delete", "deletecollection"}
	server.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: verbs},
		{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs},
		{Name: "pods/status", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"get"}},
		{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: verbs[:2]},
		{Name: "nodes", Kind: "Node", Verbs: verbs},
	}}}
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w.objects = metadatafake.NewSimpleMetadataClient(scheme,
		content("Pod", "doomed", "slow", "example.com/hold"), content("Pod", "other", "bystander"),
		content("ConfigMap", "doomed", "settings"), content("Secret", "doomed", "one"), content("Secret", "doomed", "two"),
		content("Node", "", "n1"))
	w.objects.PrependReactor("delete-collection", "*", w.deleteCollection)
	fails := func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.GetVerb() {
		case "delete", "delete-collection", "update":
			return rand.IntN(10) == 0, nil, errors.New("injected fault")
		}
		return false, nil, nil
	}
	w.objects.PrependReactor("*", "*", fails)
	w.typed.PrependReactor("*", "*", fails)
	return w
}

// deleteCollection does what the fake leaves out.
func (w *world) deleteCollection(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	resource := action.GetResource()
	if resource.Resource == "pods" && !w.podsEnd {
		return true, nil, nil
	}
	w.order = append(w.order, resource.Resource)
	for _, name := range []string{"slow", "settings"} {
		if w.objects.Tracker().Delete(resource, action.GetNamespace(), name) == nil {
			return true, nil, nil
		}
	}
	return true, nil, nil
}

func content(kind, namespace, name string, finalizers ...string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers}}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return o
}

func TestNamespaceIsEmptied(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	cache, err := cluster.New(w.typed, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(cache, w.objects, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Start(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done; cache.Stop() })

	eventually(t, "the Pod that does not end is reported", func() error {
		namespace, err := w.typed.CoreV1().Namespaces().Get(ctx, "doomed", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if namespace.Status.Phase != corev1.NamespaceTerminating {
			return fmt.Errorf("phase is %q", namespace.Status.Phase)
		}
		messages := map[corev1.NamespaceConditionType]string{}
		for _, c := range namespace.Status.Conditions {
			messages[c.Type] = string(c.Status) + ": " + c.Message
		}
		want := "True: Some resources are remaining: pods has 1 resource instances"
		if got := messages[corev1.NamespaceContentRemaining]; got != want {
			return fmt.Errorf("content remaining is %q, want %q", got, want)
		}
		want = "True: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
		if got := messages[corev1.NamespaceFinalizersRemaining]; got != want {
			return fmt.Errorf("finalizers remaining is %q, want %q", got, want)
		}
		return nil
	})
	w.mu.Lock()
	if len(w.order) > 0 {
		t.Errorf("%v were deleted before the Pods had ended", w.order)
	}
	w.podsEnd = true
	w.mu.Unlock()

	eventually(t, "the namespace is let go of", func() error {
		namespace, err := w.typed.CoreV1().Namespaces().Get(ctx, "doomed", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if f := namespace.Spec.Finalizers; len(f) != 1 || f[0] != "example.com/mine" {
			return fmt.Errorf("finalizers are %v", f)
		}
		return nil
	})
	for _, resource := range []string{"pods", "configmaps", "secrets"} {
		kind := corev1.SchemeGroupVersion.WithResource(resource)
		left, err := w.objects.Resource(kind).Namespace("doomed").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(left.Items) > 0 {
			t.Errorf("%d %s are left", len(left.Items), resource)
		}
	}
	if _, err := w.objects.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("other").Get(ctx, "bystander", metav1.GetOptions{}); err != nil {
		t.Errorf("a Pod of another namespace: %v", err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for late := range wait.Tries(30 * time.Second) {
		err := check()
		if err == nil {
			return
		}
		if late {
			t.Fatalf("%s: still not so: %v", what, err)
		}
	}
}
