// Package deployment is the lab's controller of Deployments. It owns the pods
// directly, told apart by the label pod-template-hash: the embedded API has no
// ReplicaSets, so there is no history to undo to.
package deployment

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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// parallel is how many pods are written at a time: a store that syncs every
// write to disk takes many together in the time of one.
const parallel = 16

// Controller keeps the pods of Deployments as their templates say.
type Controller struct {
	client      kubernetes.Interface
	events      record.EventRecorder
	deployments appslisters.DeploymentLister
	pods        corelisters.PodLister
	synced      []cache.InformerSynced
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName]

	// expected is touched by the worker only.
	expected map[cache.ObjectName]*expectations
}

// New makes a controller on a factory's informers, which the caller starts.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory, events record.EventRecorder) (*Controller, error) {
	deployments, pods := factory.Apps().V1().Deployments(), factory.Core().V1().Pods()
	c := &Controller{
		client: client, events: events, deployments: deployments.Lister(), pods: pods.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		expected: map[cache.ObjectName]*expectations{},
	}
	own, err := deployments.Informer().AddEventHandler(handler(c.enqueue))
	if err != nil {
		return nil, fmt.Errorf("watch deployments: %w", err)
	}
	theirs, err := pods.Informer().AddEventHandler(handler(c.enqueueOwner))
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	c.synced = []cache.InformerSynced{own.HasSynced, theirs.HasSynced}
	return c, nil
}

func handler(enqueue func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }, DeleteFunc: enqueue,
	}
}

func (c *Controller) enqueue(o any) {
	key, err := cache.DeletionHandlingObjectToName(o)
	if err != nil {
		slog.Error("object without a name", "err", err)
		return
	}
	c.queue.Add(key)
}

func (c *Controller) enqueueOwner(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	if ref := metav1.GetControllerOf(pod); ref != nil && ref.Kind == "Deployment" {
		c.queue.Add(cache.NewObjectName(pod.Namespace, ref.Name))
	}
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return
	}
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if err := c.sync(ctx, key); err != nil {
			slog.Error("deployment not brought up to date, will retry", "deployment", key, "err", err)
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

// sync takes one step for a Deployment and writes its status.
func (c *Controller) sync(ctx context.Context, key cache.ObjectName) error {
	cached, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		delete(c.expected, key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get deployment: %w", err)
	}
	if cached.DeletionTimestamp != nil || cached.Spec.Replicas == nil {
		return nil
	}
	hash, err := templateHash(&cached.Spec.Template)
	if err != nil {
		return err
	}
	pods, err := c.podsOf(cached)
	if err != nil {
		return err
	}
	s := observe(cached, hash, pods)
	if e := c.expected[key]; e.met(pods) {
		if err := c.step(ctx, key, s, hash); err != nil {
			return err
		}
	} else {
		c.queue.AddAfter(key, time.Until(e.expires))
	}
	status, err := s.status()
	if err != nil {
		return err
	}
	if after := s.recheck(status); after > 0 {
		c.queue.AddAfter(key, min(after, time.Hour))
	}
	return c.writeStatus(ctx, cached, status)
}

// step creates and deletes what the plan says.
func (c *Controller) step(ctx context.Context, key cache.ObjectName, s state, hash string) error {
	p, err := s.plan()
	if err != nil {
		return err
	}
	expected := newExpectations()
	c.expected[key] = expected
	var group errgroup.Group
	group.SetLimit(parallel)
	for range p.create {
		group.Go(func() error { return c.create(ctx, s.deployment, hash, expected) })
	}
	for _, pod := range p.remove {
		group.Go(func() error { return c.remove(ctx, s.deployment, pod, expected) })
	}
	return group.Wait()
}

func (c *Controller) create(ctx context.Context, d *appsv1.Deployment, hash string, expected *expectations) error {
	pod, err := c.client.CoreV1().Pods(d.Namespace).Create(ctx, newPod(d, hash), metav1.CreateOptions{})
	if err != nil {
		c.events.Eventf(d, corev1.EventTypeWarning, "FailedCreate", "Error creating pod: %v", err)
		return fmt.Errorf("create pod: %w", err)
	}
	expected.expectCreated(pod)
	c.events.Eventf(d, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", pod.Name)
	return nil
}

func (c *Controller) remove(ctx context.Context, d *appsv1.Deployment, pod *corev1.Pod, expected *expectations) error {
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	expected.expectDeleted(pod)
	c.events.Eventf(d, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, cached *appsv1.Deployment, status appsv1.DeploymentStatus) error {
	if equality.Semantic.DeepEqual(cached.Status, status) {
		return nil
	}
	d := cached.DeepCopy()
	d.Status = status
	_, err := c.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // changed or gone meanwhile: the informer brings us back here
	}
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
