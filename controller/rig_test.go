package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/controller"
)

// waitTimeout is how long a state may take to come about on a loaded machine.
const waitTimeout = time.Minute

// rig is an API with all controllers at work on it.
type rig struct {
	*testing.T
	client kubernetes.Interface
	ns     string
	// config leads to the same API in JSON; not set with a fake one.
	config *rest.Config
}

// newFakeRig starts the controllers on an API made of maps, every tenth write
// to which fails.
func newFakeRig(t *testing.T, options controller.Options) *rig {
	client := fake.NewClientset()
	giveIdentity(client)
	failWrites(client, 10)
	r := &rig{T: t, client: client, ns: "default"}
	// The fake has no garbage collection, no custom resources and no namespaces to speak of.
	options.Disable = append(options.Disable, fakeless()...)
	r.start(func(ctx context.Context, o controller.Options) error {
		return controller.RunClients(ctx, client, nil, o)
	}, options)
	r.awaitWatches(client, 1)
	(&rig{T: t, client: client, ns: "first"}).awaitWork()
	return r
}

// awaitWork returns once controllers work, which comes after they watch. Endpoints
// whose Service they don't know when they begin they take for left over, so a test
// that makes these first must not begin before.
func (r *rig) awaitWork() {
	r.Helper()
	r.createService(service("first", nil))
	r.eventually("controllers work", func(ctx context.Context) error {
		_, err := r.client.CoreV1().Endpoints(r.ns).Get(ctx, "first", metav1.GetOptions{})
		return err
	})
}

func fakeless() []string {
	var absent []string
	for _, name := range controller.Names() {
		switch name {
		case "namespace-controller", "garbage-collector-controller", "load-balancer-addresses-controller", "certificatesigningrequest-controller",
			"expired-objects-controller", "node-lifecycle-controller", "pod-garbage-collector-controller", "clusterrole-aggregation-controller", "serviceaccount-controller":
			absent = append(absent, name)
		}
	}
	return absent
}

func (r *rig) start(run func(context.Context, controller.Options) error, options controller.Options) {
	r.Helper()
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(r.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, options) }()
	r.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("run controllers: %v", err)
		}
	})
}

// awaitWatches returns once controllers have been started n times on the fake
// API and follow it. What changes there between an informer's list and its
// watch is lost, so a test must not begin before.
func (r *rig) awaitWatches(client *fake.Clientset, n int) {
	r.Helper()
	r.eventually("controllers watch", func(context.Context) error {
		watches := map[string]int{}
		for _, action := range client.Actions() {
			if action.GetVerb() == "watch" {
				watches[action.GetResource().Resource]++
			}
		}
		for _, resource := range []string{"services", "pods", "nodes", "endpoints", "endpointslices"} {
			if watches[resource] < n {
				return fmt.Errorf("%s are watched %d times, not %d", resource, watches[resource], n)
			}
		}
		return nil
	})
}

func (r *rig) slicesOf(service string) ([]discoveryv1.EndpointSlice, error) {
	list, err := r.client.DiscoveryV1().EndpointSlices(r.ns).List(context.Background(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// eventually waits until check finds nothing wrong.
func (r *rig) eventually(what string, check func(context.Context) error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			r.Fatalf("%s: still not so: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// errInjected is what a write that was chosen to fail returns.
var errInjected = errors.New("injected fault")

// retry repeats a call of the test's own that met an injected fault or a conflict.
func (r *rig) retry(ctx context.Context, call func() (metav1.Object, error)) (metav1.Object, error) {
	for {
		o, err := call()
		again := errors.Is(err, errInjected) || apierrors.IsConflict(err)
		if !again || ctx.Err() != nil {
			return o, err
		}
	}
}

func (r *rig) do(call func() (metav1.Object, error)) {
	r.Helper()
	if _, err := r.retry(context.Background(), call); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) createService(s *corev1.Service) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().Services(r.ns).Create(context.Background(), s, metav1.CreateOptions{})
	})
}

func (r *rig) updateService(name string, change func(*corev1.Service)) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		s, err := r.client.CoreV1().Services(r.ns).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		change(s)
		return r.client.CoreV1().Services(r.ns).Update(context.Background(), s, metav1.UpdateOptions{})
	})
}

func (r *rig) deleteService(name string) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		return nil, r.client.CoreV1().Services(r.ns).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// createPod creates the Pod and then writes the status it was given.
func (r *rig) createPod(p *corev1.Pod) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().Pods(r.ns).Create(context.Background(), p.DeepCopy(), metav1.CreateOptions{})
	})
	r.updatePodStatus(p.Name, func(s *corev1.PodStatus) { *s = p.Status })
}

func (r *rig) updatePod(name string, change func(*corev1.Pod)) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		p, err := r.client.CoreV1().Pods(r.ns).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		change(p)
		return r.client.CoreV1().Pods(r.ns).Update(context.Background(), p, metav1.UpdateOptions{})
	})
}

func (r *rig) updatePodStatus(name string, change func(*corev1.PodStatus)) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		p, err := r.client.CoreV1().Pods(r.ns).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		change(&p.Status)
		return r.client.CoreV1().Pods(r.ns).UpdateStatus(context.Background(), p, metav1.UpdateOptions{})
	})
}

func (r *rig) createNode(n *corev1.Node) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().Nodes().Create(context.Background(), n.DeepCopy(), metav1.CreateOptions{})
	})
	r.do(func() (metav1.Object, error) {
		created, err := r.client.CoreV1().Nodes().Get(context.Background(), n.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		created.Status = n.Status
		return r.client.CoreV1().Nodes().UpdateStatus(context.Background(), created, metav1.UpdateOptions{})
	})
}

// giveIdentity adds to the fake what a server adds: names from generateName,
// uids, and generations that grow.
func giveIdentity(client *fake.Clientset) {
	var mu sync.Mutex
	last := 0
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		object, err := meta.Accessor(create.GetObject())
		if err != nil {
			return true, nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		last++
		if object.GetName() == "" {
			object.SetName(fmt.Sprintf("%s%05d", object.GetGenerateName(), last))
		}
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", last)))
		object.SetGeneration(1)
		object.SetResourceVersion(fmt.Sprint(last))
		return false, nil, nil
	})
	client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			return false, nil, nil
		}
		object, err := meta.Accessor(update.GetObject())
		if err != nil {
			return true, nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		stored, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), object.GetName())
		if err != nil {
			return true, nil, err
		}
		before, err := meta.Accessor(stored)
		if err != nil {
			return true, nil, err
		}
		last++
		object.SetUID(before.GetUID())
		object.SetGeneration(before.GetGeneration() + 1)
		object.SetResourceVersion(fmt.Sprint(last))
		return false, nil, nil
	})
}

// failWrites makes one write in n fail.
func failWrites(client *fake.Clientset, n int) {
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.GetVerb() {
		case "create", "update", "patch", "delete":
			if rand.IntN(n) == 0 {
				return true, nil, fmt.Errorf("%s %s: %w", action.GetVerb(), action.GetResource().Resource, errInjected)
			}
		}
		return false, nil, nil
	})
}

// terminatePod begins the graceful deletion of a Pod, removePod ends it.
func (r *rig) terminatePod(name string) {
	r.Helper()
	if _, ok := r.client.(*fake.Clientset); ok {
		r.updatePod(name, func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) })
		return
	}
	r.deletePod(name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](60)})
}

func (r *rig) removePod(name string) {
	r.Helper()
	r.deletePod(name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
}

func (r *rig) deletePod(name string, options metav1.DeleteOptions) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		return nil, r.client.CoreV1().Pods(r.ns).Delete(context.Background(), name, options)
	})
}
