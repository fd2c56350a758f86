package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/lab/topology"
)

const retryAfter = time.Second

// worker runs one pod, from its binding to its end.
type worker struct {
	kubelet *Kubelet
	uid     types.UID
	node    *topology.Node
	first   *corev1.Pod // as it was bound; containers read this one

	updates chan *corev1.Pod // the latest, if the worker hasn't seen it yet
	changed chan struct{}    // a container or its readiness changed
	deleted chan struct{}    // the API has no such pod any more
	once    sync.Once        // closes deleted
	running atomic.Pointer[running]
	latest  atomic.Pointer[corev1.Pod] // as delivered last
	fault   atomic.Pointer[podFault]   // nil if the pod is well

	// The rest belongs to run's goroutine.
	pod        *corev1.Pod
	sandbox    *sandbox
	containers []*container
	inits      []*container                            // those that have been started
	prepared   bool                                    // the init containers are through
	status     corev1.PodStatus                        // as last written
	waiting    map[string]corev1.ContainerStateWaiting // containers that couldn't be started yet
	started    metav1.Time
}

func newWorker(k *Kubelet, pod *corev1.Pod) *worker {
	w := &worker{
		kubelet: k, uid: pod.UID, node: k.nodes[pod.Spec.NodeName], first: pod, pod: pod,
		updates: make(chan *corev1.Pod, 1), changed: make(chan struct{}, 1), deleted: make(chan struct{}),
		status: *pod.Status.DeepCopy(), started: metav1.Now(),
	}
	w.latest.Store(pod)
	return w
}

// deliver replaces what the worker hasn't seen yet. One goroutine delivers.
func (w *worker) deliver(pod *corev1.Pod) {
	select {
	case <-w.updates:
	default:
	}
	w.updates <- pod
	if before := w.latest.Swap(pod); !maps.Equal(before.Labels, pod.Labels) {
		w.openAllTargets()
	}
}

func (w *worker) gone() { w.once.Do(func() { close(w.deleted) }) }

func (w *worker) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run is the pod's life. It ends with the pod removed from the API, or, if the
// API has removed it already or ctx ends, as fast as possible.
func (w *worker) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.deleted:
			cancel()
		case <-ctx.Done():
		}
	}()
	w.awaitNode(ctx)
	for w.pod.DeletionTimestamp == nil {
		err := w.start(ctx)
		if err == nil {
			break
		}
		w.fail(err)
		if !w.pause(ctx) {
			return
		}
	}
	w.live(ctx)
	w.awaitNode(ctx)
	if ctx.Err() == nil {
		w.terminate(ctx)
	}
	w.remove(ctx)
}

// start makes the sandbox and starts the containers.
func (w *worker) start(ctx context.Context) error {
	s, err := newSandbox(w.node, w.pod)
	if err != nil {
		return fmt.Errorf("create pod sandbox: %w", err)
	}
	w.sandbox, w.containers, w.inits, w.prepared = s, nil, nil, false
	if w.initialize(ctx); w.prepared {
		w.startContainers(ctx)
	}
	return nil
}

// running are a pod's containers that have been started.
type running struct {
	sandbox    *sandbox
	containers []*container
	complete   bool // all of them
}

// live keeps the status up to date until the pod shall end or has ended.
func (w *worker) live(ctx context.Context) {
	for w.pod.DeletionTimestamp == nil && ctx.Err() == nil {
		if !w.writeStatus(ctx) {
			if !w.pause(ctx) {
				return
			}
			continue
		}
		select {
		case w.pod = <-w.updates:
		case <-w.changed:
		case <-ctx.Done():
		}
	}
}

// terminate ends the containers within the grace period, as Kubernetes does
// (Pod Lifecycle, "Termination of Pods"): hooks first; readiness goes on
// being probed and reported meanwhile.
func (w *worker) terminate(ctx context.Context) {
	for _, c := range slices.Concat(w.containers, w.inits) {
		if ended, _ := c.over(); ended {
			continue
		}
		w.kubelet.events.Eventf(w.pod, corev1.EventTypeNormal, "Killing", "Stopping container %s", c.spec.Name)
	}
	graceful, kill := context.WithCancel(ctx)
	defer kill()
	timer := time.AfterFunc(grace(w.pod), kill)
	defer timer.Stop()
	var stopping sync.WaitGroup
	for _, c := range w.containers {
		stopping.Go(func() { c.stop(graceful) })
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stopping.Wait()
		for _, c := range slices.Backward(w.inits) { // sidecars, after those that they serve
			c.stop(graceful)
		}
	}()
	for {
		if w.sandbox != nil && !w.writeStatus(ctx) {
			time.AfterFunc(retryAfter, w.notify)
		}
		select {
		case pod := <-w.updates:
			if before := grace(w.pod); grace(pod) < before {
				timer.Reset(grace(pod)) // deleted again, with a shorter grace period
			}
			w.pod = pod
		case <-w.changed:
		case <-stopped:
			return
		}
	}
}

func grace(p *corev1.Pod) time.Duration {
	if p.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
}

// remove takes the sandbox away and, if the pod was to be deleted, the pod out
// of the API.
func (w *worker) remove(ctx context.Context) {
	w.running.Store(nil)
	if err := w.mend(); err != nil {
		w.fail(err)
	}
	for _, c := range slices.Concat(w.containers, w.inits) {
		c.kill()
	}
	if w.pod.DeletionTimestamp != nil && w.sandbox != nil && ctx.Err() == nil {
		w.writeStatus(ctx) // that nothing is ready any more
	}
	if w.sandbox != nil {
		if err := errors.Join(w.sandbox.remove(), w.removeVolumes()); err != nil {
			w.fail(err)
		}
		w.sandbox = nil
	}
	for w.pod.DeletionTimestamp != nil && ctx.Err() == nil {
		zero := metav1.NewDeleteOptions(0)
		zero.Preconditions = metav1.NewUIDPreconditions(string(w.uid))
		err := w.kubelet.client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, *zero)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		w.fail(fmt.Errorf("delete pod from the API: %w", err))
		if !w.pause(ctx) {
			return
		}
	}
}

// pause waits before trying again; false when there is nothing to try for.
func (w *worker) pause(ctx context.Context) bool {
	select {
	case <-time.After(retryAfter):
	case pod := <-w.updates:
		w.pod = pod
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// fail logs an error, and says so on the pod.
func (w *worker) fail(err error) {
	slog.Error("pod failed", "pod", w.pod.Namespace+"/"+w.pod.Name, "node", w.node.Name, "error", err)
	w.kubelet.events.Event(w.pod, corev1.EventTypeWarning, "Failed", err.Error())
}
