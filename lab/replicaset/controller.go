// Package replicaset is the lab's controller of ReplicaSets: it keeps as many
// pods of a ReplicaSet's template as the ReplicaSet asks for. It adopts pods that
// the selector matches and nobody controls, and releases those that it no longer
// matches, as Kubernetes does.
package replicaset

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
)

// parallel is how many pods are written at a time: a store that syncs every
// write to disk takes many together in the time of one.
const parallel = 16

// Controller keeps the pods of ReplicaSets.
type Controller struct {
	client kubernetes.Interface
	events record.EventRecorder
	sets   appslisters.ReplicaSetLister
	pods   corelisters.PodLister
	synced []cache.InformerSynced
	queue  *queue.Queue[types.NamespacedName]

	// expected is touched by the worker only.
	expected map[types.NamespacedName]*expectations
}

// New makes a controller on a factory's informers, which the caller starts.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory, events record.EventRecorder) (*Controller, error) {
	sets, pods := factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods()
	c := &Controller{client: client, events: events, sets: sets.Lister(), pods: pods.Lister(), expected: map[types.NamespacedName]*expectations{}}
	c.queue = queue.New(slog.With("controller", "replicaset"), c.sync)
	own, err := sets.Informer().AddEventHandler(cluster.Change[appsv1.ReplicaSet](c.changed))
	if err != nil {
		return nil, fmt.Errorf("watch replicasets: %w", err)
	}
	theirs, err := pods.Informer().AddEventHandler(cluster.Change[corev1.Pod](c.podChanged))
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	c.synced = []cache.InformerSynced{own.HasSynced, theirs.HasSynced}
	return c, nil
}

func (c *Controller) changed(old, new *appsv1.ReplicaSet) {
	if new == nil {
		new = old
	}
	c.queue.Add(types.NamespacedName{Namespace: new.Namespace, Name: new.Name})
}

// podChanged queues the ReplicaSets of a pod: those that it has left, too.
func (c *Controller) podChanged(old, new *corev1.Pod) {
	for _, pod := range []*corev1.Pod{old, new} {
		if pod != nil {
			c.enqueueOwner(pod)
		}
	}
}

// enqueueOwner queues the ReplicaSet that controls a pod, or those that may want
// to adopt it.
func (c *Controller) enqueueOwner(pod *corev1.Pod) {
	if ref := metav1.GetControllerOf(pod); ref != nil {
		if ref.Kind == "ReplicaSet" {
			c.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name})
		}
		return
	}
	sets, err := c.sets.GetPodReplicaSets(pod)
	if err != nil {
		return // none matches
	}
	for _, s := range sets {
		c.queue.Add(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	}
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) {
	if cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		c.queue.Run(ctx, 1)
	}
}

// sync creates or deletes what is missing or too much, and writes the status.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	set, err := c.sets.ReplicaSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		delete(c.expected, key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get replicaset: %w", err)
	}
	if set.Spec.Replicas == nil {
		return nil
	}
	claimed, err := c.claim(ctx, set)
	if err != nil {
		return err
	}
	s := observe(set, claimed)
	var failed error
	if e := c.expected[key]; set.DeletionTimestamp != nil {
		// Whoever deletes it says what becomes of its pods.
	} else if e.met(claimed) {
		failed = c.scale(ctx, key, s)
	} else {
		c.queue.AddAfter(key, time.Until(e.expires))
	}
	if after := s.recheck(); after > 0 {
		c.queue.AddAfter(key, after)
	}
	if err := c.writeStatus(ctx, set, s.status(failed)); err != nil {
		return err
	}
	return failed
}

// scale creates or deletes pods.
func (c *Controller) scale(ctx context.Context, key types.NamespacedName, s state) error {
	missing := int(*s.set.Spec.Replicas) - len(s.active)
	if missing == 0 {
		return nil
	}
	expected := newExpectations()
	c.expected[key] = expected
	var group errgroup.Group
	group.SetLimit(parallel)
	for range missing {
		group.Go(func() error { return c.create(ctx, s.set, expected) })
	}
	if missing < 0 {
		for _, pod := range s.leastUseful()[:-missing] {
			group.Go(func() error { return c.remove(ctx, s.set, pod, expected) })
		}
	}
	return group.Wait()
}

func (c *Controller) create(ctx context.Context, set *appsv1.ReplicaSet, expected *expectations) error {
	pod, err := c.client.CoreV1().Pods(set.Namespace).Create(ctx, newPod(set), metav1.CreateOptions{})
	if err != nil {
		c.events.Eventf(set, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		return fmt.Errorf("create pod: %w", err)
	}
	expected.expectCreated(pod)
	c.events.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", pod.Name)
	return nil
}

func (c *Controller) remove(ctx context.Context, set *appsv1.ReplicaSet, pod *corev1.Pod, expected *expectations) error {
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	expected.expectDeleted(pod)
	c.events.Eventf(set, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, cached *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) error {
	if equality.Semantic.DeepEqual(cached.Status, status) {
		return nil
	}
	set := cached.DeepCopy()
	set.Status = status
	_, err := c.client.AppsV1().ReplicaSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // changed or gone meanwhile: the informer brings us back here
	}
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
