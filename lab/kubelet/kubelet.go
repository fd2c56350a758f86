// Package kubelet runs the pods that are bound to a lab's nodes: a network
// namespace each, an echo server for container ports or the container's own
// command, readiness probes, status, and graceful termination.
package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/lab/topology"
)

// Kubelet runs the pods of all nodes of a lab.
type Kubelet struct {
	client kubernetes.Interface
	events record.EventRecorder
	nodes  map[string]*topology.Node
	logs   string
	files  func(namespace string) (map[string]string, error)
	images map[string][]string // commands for images

	services corelisters.ServiceLister

	breaking sync.Mutex // held while something is broken or mended

	mu      sync.Mutex
	started bool
	workers map[types.UID]*worker
	running sync.WaitGroup
	ctx     context.Context // of Run; workers live in it

	nodeFaults map[string]*nodeFault // by the node's name
	beating    map[string]bool       // nodes whose Leases are renewed
}

// New makes a kubelet for nodes, on a factory's informers, which the caller
// starts after Run. The output of containers with a command goes to files in
// the directory logs. Commands in pods of a namespace find the files that files
// tells in the place of the host's: from the host's path to the other.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory, events record.EventRecorder, nodes []*topology.Node, logs string, files func(namespace string) (map[string]string, error)) (*Kubelet, error) {
	k := &Kubelet{client: client, events: events, logs: logs, files: files, services: factory.Core().V1().Services().Lister(), nodes: map[string]*topology.Node{}, workers: map[types.UID]*worker{}, nodeFaults: map[string]*nodeFault{}, beating: map[string]bool{}}
	for _, n := range nodes {
		k.nodes[n.Name] = n
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.update(o) },
		UpdateFunc: func(_, o any) { k.update(o) },
		DeleteFunc: func(o any) { k.delete(o) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	if err := k.watchServices(factory.Core().V1().Services().Informer()); err != nil {
		return nil, fmt.Errorf("watch services: %w", err)
	}
	return k, nil
}

// Run runs pods until the context ends, and then stops them without grace.
func (k *Kubelet) Run(ctx context.Context) {
	k.mu.Lock()
	k.ctx, k.started = ctx, true
	for _, w := range k.workers {
		k.start(w)
	}
	k.mu.Unlock()
	<-ctx.Done()
	k.mu.Lock()
	k.started = false
	k.mu.Unlock()
	k.running.Wait()
}

// update hands a pod to its worker, which it makes for a new pod of our nodes.
func (k *Kubelet) update(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok || k.nodes[pod.Spec.NodeName] == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.workers[pod.UID]; w != nil {
		w.deliver(pod)
		return
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		if pod.DeletionTimestamp == nil {
			return // it has run already
		}
	}
	w := newWorker(k, pod)
	k.workers[pod.UID] = w
	if k.started {
		k.start(w)
	}
}

// start runs a worker; k.mu is held.
func (k *Kubelet) start(w *worker) {
	k.running.Go(func() {
		w.run(k.ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.workers, w.uid)
	})
}

// delete ends the worker of a pod that the API doesn't have any more.
func (k *Kubelet) delete(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		slog.Error("an object is not a Pod", "type", fmt.Sprintf("%T", o))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.workers[pod.UID]; w != nil {
		w.gone()
	}
}
