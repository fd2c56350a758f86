// Package scheduler assigns the lab's pods to nodes, as evenly as it can: see choose.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// parallel is how many bindings are written at a time: a store that syncs every
// write to disk takes many together in the time of one.
const parallel = 16

// Scheduler binds pods without a node, of whatever schedulerName, to nodes.
type Scheduler struct {
	client kubernetes.Interface
	events record.EventRecorder
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	synced []cache.InformerSynced
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]

	// assumed are bindings that the informer hasn't shown yet.
	mu      sync.Mutex
	assumed map[types.UID]string

	binding chan struct{} // a token for each binding that is being written
}

// New makes a scheduler on a factory's informers, which the caller starts.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory, events record.EventRecorder) (*Scheduler, error) {
	pods, nodes := factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	s := &Scheduler{
		client: client, events: events, pods: pods.Lister(), nodes: nodes.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		assumed: map[types.UID]string{},
		binding: make(chan struct{}, parallel),
	}
	podEvents, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.enqueue(o) },
		UpdateFunc: func(_, o any) { s.enqueue(o) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	// A changed node may be what pending pods wait for.
	nodeEvents, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.enqueueAll() },
		UpdateFunc: func(any, any) { s.enqueueAll() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	s.synced = []cache.InformerSynced{podEvents.HasSynced, nodeEvents.HasSynced}
	return s, nil
}

// Run schedules until the context ends.
func (s *Scheduler) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return
	}
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		if err := s.schedule(ctx, key); err != nil {
			slog.Error("Pods could not be scheduled; trying again", "pod", key, "error", err)
			s.queue.AddRateLimited(key)
		} else {
			s.queue.Forget(key)
		}
		s.queue.Done(key)
	}
}

func (s *Scheduler) enqueue(o any) {
	if p, ok := o.(*corev1.Pod); ok && pending(p) {
		s.queue.Add(cache.MetaObjectToName(p))
	}
}

func (s *Scheduler) enqueueAll() {
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		slog.Error("Pods could not be listed", "error", err)
	}
	for _, p := range pods {
		s.enqueue(p)
	}
}

func pending(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !finished(p)
}

// schedule binds one pod, if it still needs that.
func (s *Scheduler) schedule(ctx context.Context, key cache.ObjectName) error {
	pod, err := s.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get pod: %w", err)
	}
	if !pending(pod) || s.place(pod) != "" {
		return nil
	}
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	s.forgetSeen(pods)
	node, err := choose(pod, nodes, pods, s.place)
	var none unschedulableError
	if errors.As(err, &none) {
		return s.report(ctx, pod, none)
	}
	if err != nil {
		return fmt.Errorf("choose node: %w", err)
	}
	s.assume(pod, node)
	s.binding <- struct{}{}
	go func() {
		defer func() { <-s.binding }()
		if err := s.bind(ctx, pod, node); err != nil {
			slog.Error("a Pod could not be bound; trying again", "pod", key, "error", err)
			s.assume(pod, "")
			s.queue.AddRateLimited(key)
		}
	}()
	return nil
}

func (s *Scheduler) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	err := s.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, replaced or bound by somebody else: the informer will show which
	}
	if err != nil {
		return fmt.Errorf("bind pod to %s: %w", node, err)
	}
	s.events.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
	return nil
}

// assume notes where a pod will be; "" takes that back.
func (s *Scheduler) assume(p *corev1.Pod, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node == "" {
		delete(s.assumed, p.UID)
	} else {
		s.assumed[p.UID] = node
	}
}

// place is the node on which a pod is or is about to be.
func (s *Scheduler) place(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assumed[p.UID]
}

// forgetSeen drops the assumed bindings that the informer shows by now.
func (s *Scheduler) forgetSeen(pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := map[types.UID]string{}
	for _, p := range pods {
		if node, ok := s.assumed[p.UID]; ok && p.Spec.NodeName == "" {
			waiting[p.UID] = node
		}
	}
	s.assumed = waiting
}
