package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/fairway-net/fairway/lab/topology"
)

// usageWindow is for how long the processor's use is measured: when somebody
// asks, so that nothing is measured when nobody does.
const usageWindow = 500 * time.Millisecond

// handleUsage adds what the API server passes on of metrics.k8s.io. Echo servers
// are no processes of their pods, which use nothing then.
func (k *Kubelet) handleUsage(mux *http.ServeMux) {
	mux.HandleFunc("GET /usage/nodes", k.serveUsage(func(ctx context.Context, req *http.Request) (any, error) {
		items, err := k.nodeUsage(ctx, req)
		list := &metricsv1beta1.NodeMetricsList{Items: items}
		list.SetGroupVersionKind(metricsv1beta1.SchemeGroupVersion.WithKind("NodeMetricsList"))
		return list, err
	}))
	mux.HandleFunc("GET /usage/nodes/{name}", k.serveUsage(func(ctx context.Context, req *http.Request) (any, error) {
		items, err := k.nodeUsage(ctx, req)
		if err != nil || len(items) != 1 {
			return nil, cmp.Or(err, fmt.Errorf("there is no node %q", req.PathValue("name")))
		}
		items[0].SetGroupVersionKind(metricsv1beta1.SchemeGroupVersion.WithKind("NodeMetrics"))
		return items[0], nil
	}))
	pods := k.serveUsage(func(ctx context.Context, req *http.Request) (any, error) {
		items, err := k.podUsage(ctx, req)
		list := &metricsv1beta1.PodMetricsList{Items: items}
		list.SetGroupVersionKind(metricsv1beta1.SchemeGroupVersion.WithKind("PodMetricsList"))
		return list, err
	})
	mux.HandleFunc("GET /usage/pods", pods)
	mux.HandleFunc("GET /usage/namespaces/{namespace}/pods", pods)
	mux.HandleFunc("GET /usage/namespaces/{namespace}/pods/{name}", k.serveUsage(func(ctx context.Context, req *http.Request) (any, error) {
		items, err := k.podUsage(ctx, req)
		if err != nil || len(items) != 1 {
			return nil, cmp.Or(err, fmt.Errorf("pod %s/%s does not run on a node of this lab", req.PathValue("namespace"), req.PathValue("name")))
		}
		items[0].SetGroupVersionKind(metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"))
		return items[0], nil
	}))
}

func (k *Kubelet) serveUsage(read func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		answer, err := read(req.Context(), req)
		if err != nil {
			refuse(w, http.StatusNotFound, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the client may be gone
	}
}

// nodeUsage is that of the nodes that a request asks for: by name, by labels, or
// all.
func (k *Kubelet) nodeUsage(ctx context.Context, req *http.Request) ([]metricsv1beta1.NodeMetrics, error) {
	nodes, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: req.URL.Query().Get("labelSelector")})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var parts []string
	chosen := slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool {
		name := req.PathValue("name")
		return k.nodes[n.Name] == nil || name != "" && name != n.Name
	})
	for _, n := range chosen {
		parts = append(parts, n.Name)
	}
	used, err := k.measure(ctx, parts)
	if err != nil {
		return nil, err
	}
	items := make([]metricsv1beta1.NodeMetrics, len(chosen))
	for i, n := range chosen {
		items[i] = metricsv1beta1.NodeMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: metav1.Now()},
			Timestamp:  metav1.Now(), Window: metav1.Duration{Duration: usageWindow}, Usage: used[i],
		}
	}
	return items, nil
}

// podUsage is that of the pods that a request asks for. A pod's is all in its
// first container: they share a cgroup.
func (k *Kubelet) podUsage(ctx context.Context, req *http.Request) ([]metricsv1beta1.PodMetrics, error) {
	selector, err := labels.Parse(req.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	k.mu.Lock()
	var chosen []*worker
	var parts []string
	for _, w := range k.workers {
		namespace, name := req.PathValue("namespace"), req.PathValue("name")
		if w.running.Load() == nil || namespace != "" && namespace != w.first.Namespace || name != "" && name != w.first.Name ||
			!selector.Matches(labels.Set(w.latest.Load().Labels)) {
			continue
		}
		chosen, parts = append(chosen, w), append(parts, podCgroup(w.node, w.first))
	}
	k.mu.Unlock()
	used, err := k.measure(ctx, parts)
	if err != nil {
		return nil, err
	}
	items := make([]metricsv1beta1.PodMetrics, len(chosen))
	for i, w := range chosen {
		items[i] = metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: w.first.Name, Namespace: w.first.Namespace, Labels: w.latest.Load().Labels, CreationTimestamp: metav1.Now()},
			Timestamp:  metav1.Now(), Window: metav1.Duration{Duration: usageWindow},
			Containers: []metricsv1beta1.ContainerMetrics{{Name: w.first.Spec.Containers[0].Name, Usage: used[i]}},
		}
	}
	return items, nil
}

// measure is what cgroups of the lab use, in their order.
func (k *Kubelet) measure(ctx context.Context, parts []string) ([]corev1.ResourceList, error) {
	before, err := k.use(parts)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if !sleep(ctx, usageWindow) {
		return nil, ctx.Err()
	}
	now, err := k.use(parts)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	list := make([]corev1.ResourceList, len(parts))
	for i := range parts {
		spent := max(0, now[i].CPU-before[i].CPU)
		list[i] = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(float64(spent)/float64(took)*1e9), resource.Nano),
			corev1.ResourceMemory: *resource.NewQuantity(now[i].Memory, resource.BinarySI),
		}
	}
	return list, nil
}

func (k *Kubelet) use(parts []string) ([]topology.Use, error) {
	used := make([]topology.Use, len(parts))
	for i, part := range parts {
		dir, err := topology.FindCgroup(k.lab(), part)
		if err != nil {
			return nil, err
		}
		if used[i], err = topology.CgroupUse(dir); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// lab names the lab of the nodes.
func (k *Kubelet) lab() string {
	for _, n := range k.nodes {
		return n.LabName()
	}
	return ""
}
