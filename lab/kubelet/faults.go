package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/lab/fault"
	"github.com/fairway-net/fairway/lab/topology"
)

// Fault is what is wrong with a pod, as NAMESPACE/NAME, or with a node.
type Fault struct {
	Pod, Node string     `json:",omitempty"`
	Kind      fault.Kind `json:"kind"`
}

// podFault is a pod's; it ends with mend.
type podFault struct {
	kind fault.Kind
	mend func() error
}

// nodeFault is a node's. Nobody hears of the node's pods until mended is closed.
type nodeFault struct {
	kind   fault.Kind
	mended chan struct{}
}

// handleFaults adds what breaks and mends pods and nodes.
func (k *Kubelet) handleFaults(mux *http.ServeMux) {
	answer := func(do func(*http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			k.breaking.Lock()
			defer k.breaking.Unlock()
			if err := do(req); err != nil {
				refuse(w, http.StatusBadRequest, err)
			}
		}
	}
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(k.faults()) })
	mux.HandleFunc("PUT /faults/pods/{namespace}/{pod}", answer(func(req *http.Request) error {
		return k.breakPod(req.PathValue("namespace"), req.PathValue("pod"), fault.Kind(req.URL.Query().Get("kind")))
	}))
	mux.HandleFunc("DELETE /faults/pods/{namespace}/{pod}", answer(func(req *http.Request) error {
		w, err := k.worker(req.PathValue("namespace"), req.PathValue("pod"))
		if err != nil {
			return err
		}
		return w.mend()
	}))
	mux.HandleFunc("PUT /faults/nodes/{node}", answer(func(req *http.Request) error {
		return k.breakNode(req.PathValue("node"), fault.Kind(req.URL.Query().Get("kind")))
	}))
	mux.HandleFunc("DELETE /faults/nodes/{node}", answer(func(req *http.Request) error { return k.mendNode(req.PathValue("node")) }))
	mux.HandleFunc("DELETE /faults", answer(func(*http.Request) error { return k.mendAll() }))
}

// faults lists what is wrong: nodes first, each by name.
func (k *Kubelet) faults() []Fault {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := []Fault{}
	for name, f := range k.nodeFaults {
		list = append(list, Fault{Node: name, Kind: f.kind})
	}
	for _, w := range k.workers {
		if f := w.fault.Load(); f != nil {
			list = append(list, Fault{Pod: w.first.Namespace + "/" + w.first.Name, Kind: f.kind})
		}
	}
	slices.SortFunc(list, func(a, b Fault) int { return strings.Compare(a.Pod+" "+a.Node, b.Pod+" "+b.Node) })
	return list
}

// worker finds a pod's.
func (k *Kubelet) worker(namespace, name string) (*worker, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		if w.first.Namespace == namespace && w.first.Name == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s does not run on a node of this lab", namespace, name)
}

func (k *Kubelet) breakPod(namespace, name string, kind fault.Kind) error {
	if !slices.Contains(fault.Pods, kind) {
		return fmt.Errorf("pod fault %q: must be one of %v", kind, fault.Pods)
	}
	w, err := k.worker(namespace, name)
	if err != nil {
		return err
	}
	r := w.running.Load()
	switch {
	case r == nil:
		return fmt.Errorf("pod %s/%s has not started its containers, or has ended them", namespace, name)
	case r.sandbox.pod == nil && kind != fault.Unready:
		return fmt.Errorf("pod %s/%s has the network of its node: break node %s", namespace, name, w.node.Name)
	}
	if err := w.mend(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(k.ctx)
	f := &podFault{kind: kind, mend: func() error { cancel(); return nil }}
	if ns := r.sandbox.host.NS; kind != fault.Unready {
		if err := fault.BreakPod(ctx, ns, topology.NodeInterface, kind); err != nil {
			cancel()
			return err
		}
		f.mend = func() error { defer cancel(); return fault.MendPod(ns) }
	}
	w.fault.Store(f)
	w.notify()
	return nil
}

// mend undoes what breakPod did, if anything.
func (w *worker) mend() error {
	f := w.fault.Swap(nil)
	if f == nil {
		return nil
	}
	w.notify()
	return f.mend()
}

// unready says whether the pod is to be unready whatever its probes say.
func (w *worker) unready() bool {
	f := w.fault.Load()
	return f != nil && f.kind == fault.Unready
}

func (k *Kubelet) breakNode(name string, kind fault.Kind) error {
	if !slices.Contains(fault.Nodes, kind) {
		return fmt.Errorf("node fault %q: must be one of %v", kind, fault.Nodes)
	}
	if err := k.mendNode(name); err != nil {
		return err
	}
	if err := k.renew(k.ctx, name); err != nil { // from now on its silence counts
		return err
	}
	k.mu.Lock()
	k.nodeFaults[name] = &nodeFault{kind, make(chan struct{})}
	k.mu.Unlock()
	if err := k.nodes[name].Break(kind); err != nil {
		return errors.Join(err, k.mendNode(name))
	}
	k.beat(k.ctx, k.nodes[name])
	return nil
}

// mendNode undoes what breakNode did, if anything. Pods that were without power
// start anew.
func (k *Kubelet) mendNode(name string) error {
	node := k.nodes[name]
	if node == nil {
		return fmt.Errorf("there is no node %q in this lab", name)
	}
	k.mu.Lock()
	f := k.nodeFaults[name]
	k.mu.Unlock()
	if f == nil {
		return nil
	}
	if err := node.Mend(); err != nil {
		return err
	}
	k.mu.Lock()
	delete(k.nodeFaults, name)
	close(f.mended)
	var pods []*worker
	for _, w := range k.workers {
		if w.node == node {
			pods = append(pods, w)
		}
	}
	k.mu.Unlock()
	var failed []error
	for _, w := range pods {
		if r := w.running.Load(); r != nil && f.kind == fault.Power {
			failed = append(failed, r.startEchoesAnew())
		}
		w.notify()
	}
	return errors.Join(failed...)
}

// startEchoesAnew restarts the echo servers, which are no processes of the node.
func (r *running) startEchoesAnew() error {
	var failed []error
	for _, c := range r.containers {
		if echo, ok := c.process.(*echoProcess); ok {
			_, err := echo.restart(0)
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (k *Kubelet) mendAll() error {
	var failed []error
	for name := range k.nodes {
		failed = append(failed, k.mendNode(name))
	}
	k.mu.Lock()
	var pods []*worker
	for _, w := range k.workers {
		pods = append(pods, w)
	}
	k.mu.Unlock()
	for _, w := range pods {
		failed = append(failed, w.mend())
	}
	return errors.Join(failed...)
}

// cutOff says whether nobody hears of a node's pods, and until when.
func (k *Kubelet) cutOff(node string) (mended <-chan struct{}, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.nodeFaults[node]; f != nil {
		return f.mended, true
	}
	return nil, false
}

// awaitNode waits until the worker's node is heard of, or ctx ends.
func (w *worker) awaitNode(ctx context.Context) {
	for ctx.Err() == nil {
		mended, is := w.kubelet.cutOff(w.node.Name)
		if !is {
			return
		}
		select {
		case <-mended:
		case <-ctx.Done():
		}
	}
}
