package apiserver

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for late := range wait.Tries(30 * time.Second) {
		if condition() {
			break
		}
		if late {
			t.Fatalf("%s does not come true", what)
		}
	}
}

// TestInformers: an unmodified client-go informer over protobuf fills its
// store with a streaming list and then follows.
func TestInformers(t *testing.T) {
	s := sharedServer(t)
	c := client(t, s)
	if err := createServices(within(t), c, "old", 100); err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(c, 0)
	informer := factory.Core().V1().Services().Informer()
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(within(t).Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	if n := len(informer.GetStore().List()); n != 101 {
		t.Errorf("%d Services in the informer, want 101", n)
	}
	if err := createServices(within(t), c, "new", 10); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the informer follows", func() bool { return len(informer.GetStore().List()) == 111 })
}

// TestWatchList asks for a streaming list itself: the objects come as events,
// then a bookmark that says that these were all (KEP-3157).
func TestWatchList(t *testing.T) {
	s := sharedServer(t)
	c := client(t, s)
	if err := createServices(within(t), c, "s", 20); err != nil {
		t.Fatal(err)
	}
	yes := true
	w, err := c.CoreV1().Services("").Watch(within(t), metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	added := 0
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Added:
			added++
		case watch.Bookmark:
			if event.Object.(*corev1.Service).Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				if added != 21 {
					t.Errorf("%d objects before the bookmark, want 21", added)
				}
				return
			}
		default:
			t.Fatalf("unexpected event %v", event)
		}
	}
	t.Error("the watch ended without a bookmark")
}

// TestFieldSelectors: watches for a node's own Pods and the like.
func TestFieldSelectors(t *testing.T) {
	s := sharedServer(t)
	c := client(t, s)
	ctx := within(t)
	for name, node := range map[string]string{"a": "n1", "b": "n2", "c": ""} {
		_, err := c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]int{
		"spec.nodeName=n1": 1, "spec.nodeName=": 1, "spec.nodeName!=": 2, "status.phase=Pending": 3, "metadata.name=b": 1, "status.phase=Running": 0,
	} {
		// Without a resource version from etcd, with "0" from the watch cache.
		for _, version := range []string{"", "0"} {
			list, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != want {
				t.Errorf("%s at version %q: %d Pods, want %d", selector, version, len(list.Items), want)
			}
		}
	}
	if _, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.colour=red"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field selector gives %v, want a bad request", err)
	}
}

// TestGracefulDeletion: a Pod on a node stays until its node lets it go; one
// on no node goes at once.
func TestGracefulDeletion(t *testing.T) {
	s := sharedServer(t)
	pods := client(t, s).CoreV1().Pods("default")
	ctx := within(t)
	for name, node := range map[string]string{"placed": "n1", "pending": ""} {
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pods.Get(ctx, "pending", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Pod on no node is still there: %v", err)
	}
	pod, err := pods.Get(ctx, "placed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 30 {
		t.Errorf("deletion at %v with %v seconds, want 30", pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds)
	}
	pod.Status.Phase = corev1.PodRunning
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update the status of a Pod that is going: %v", err)
	}
	if err := pods.Delete(ctx, "placed", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(ctx, "placed", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Pod deleted without grace is still there: %v", err)
	}
}

// TestBinding: a scheduler places a Pod once.
func TestBinding(t *testing.T) {
	s := sharedServer(t)
	pods := client(t, s).CoreV1().Pods("default")
	ctx := within(t)
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bind := func(node string, seen ...metav1.ObjectMeta) error {
		meta := metav1.ObjectMeta{Name: "p"}
		if len(seen) > 0 {
			meta = seen[0]
		}
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: meta, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	}
	for what, seen := range map[string]metav1.ObjectMeta{"another Pod of the name": {Name: "p", UID: "other"}, "an older state": {Name: "p", ResourceVersion: "1"}} {
		if err := bind("n1", seen); !apierrors.IsConflict(err) {
			t.Errorf("who saw %s gets %v, want a conflict", what, err)
		}
	}
	if err := bind("n1"); err != nil {
		t.Fatal(err)
	}
	if err := bind("n2"); !apierrors.IsConflict(err) {
		t.Errorf("a second binding gives %v, want a conflict", err)
	}
	pod, err := pods.Get(ctx, "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != "n1" || len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Type != corev1.PodScheduled {
		t.Errorf("after binding, node %q and conditions %v", pod.Spec.NodeName, pod.Status.Conditions)
	}
}

// TestNamespaceLifecycle: what a namespace controller builds on.
func TestNamespaceLifecycle(t *testing.T) {
	s := sharedServer(t)
	c := client(t, s)
	ctx := within(t)
	namespaces := c.CoreV1().Namespaces()
	ns, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "temp"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ns.Labels[corev1.LabelMetadataName] != "temp" || len(ns.Spec.Finalizers) != 1 || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("a new namespace is %v", ns)
	}
	if err := namespaces.Delete(ctx, "default", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting the default namespace gives %v, want forbidden", err)
	}
	if err := namespaces.Delete(ctx, "temp", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func() error {
		_, err := c.CoreV1().ConfigMaps("temp").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
		return err
	}
	eventually(t, "that nothing is created in a namespace that is going", func() bool { return apierrors.IsForbidden(create()) })
	ns, err = namespaces.Get(ctx, "temp", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil {
		t.Errorf("a deleted namespace is %v", ns)
	}
	ns.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Get(ctx, "temp", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a finalized namespace is still there: %v", err)
	}
}

// TestCredentials: who may do what.
func TestCredentials(t *testing.T) {
	s := sharedServer(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	for path, want := range map[string]int{
		"/healthz": 200, "/livez": 200, "/readyz": 200, "/version": 200,
		"/": 401, "/api": 401, "/api/v1/services": 401, "/metrics": 401, "/openapi/v2": 401,
	} {
		resp, err := (&http.Client{Transport: transport}).Get(s.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if resp.StatusCode != want {
			t.Errorf("anonymous GET %s: %d, want %d", path, resp.StatusCode, want)
		}
	}

	ctx := within(t)
	node := clientOf(t, s, func() ([]byte, error) { return s.NodeKubeconfig("n1") })
	if _, err := node.CoreV1().Services("").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("a node can't list Services: %v", err)
	}
	if _, err := node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a node can't register: %v", err)
	}
	label := []byte(`{"metadata":{"labels":{"topology.kubernetes.io/zone":"b"}}}`)
	if _, err := node.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		t.Errorf("a node can't update itself: %v", err)
	}
	if _, err := node.CoreV1().Nodes().Patch(ctx, "n2", types.MergePatchType, label, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node updating another gives %v, want forbidden", err)
	}
	if _, err := node.CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node listing Secrets gives %v, want forbidden", err)
	}
	if err := node.CoreV1().Services("default").Delete(ctx, "kubernetes", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node deleting a Service gives %v, want forbidden", err)
	}
	nobody := clientOf(t, s, func() ([]byte, error) { return s.Kubeconfig("nobody") })
	if _, err := nobody.CoreV1().Services("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without groups listing Services gives %v, want forbidden", err)
	}
	if _, err := nobody.Discovery().ServerGroups(); err != nil {
		t.Errorf("a user without groups can't discover: %v", err)
	}
	stranger := rest.CopyConfig(s.LoopbackConfig())
	stranger.BearerToken = "guessed"
	c, err := kubernetes.NewForConfig(stranger)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Services("").List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a guessed token gives %v, want unauthorized", err)
	}
}

// clientOf returns the client that a kubeconfig makes.
func clientOf(t *testing.T, _ *Server, kubeconfig func() ([]byte, error)) *kubernetes.Clientset {
	t.Helper()
	data, err := kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
