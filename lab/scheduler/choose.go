package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// candidate is a node that can take the pod, with what is on it already.
type candidate struct {
	node     string
	siblings int // pods with the same controller
	pods     int
}

// choose picks the node for a pod: one that the pod's node selector, its
// required node affinity and the node's taints allow; of those the one with the
// fewest pods of the same controller, then the one with the fewest pods. Pods
// are counted where place says.
func choose(pod *corev1.Pod, nodes []*corev1.Node, pods []*corev1.Pod, place func(*corev1.Pod) string) (string, error) {
	var fit []candidate
	refused := map[string]int{}
	for _, n := range nodes {
		reason, err := refusal(pod, n)
		if err != nil {
			return "", err
		}
		if reason != "" {
			refused[reason]++
			continue
		}
		fit = append(fit, candidate{node: n.Name})
	}
	if len(fit) == 0 {
		return "", unschedulable(len(nodes), refused)
	}
	count(fit, pod, pods, place)
	return slices.MinFunc(fit, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.siblings, b.siblings), cmp.Compare(a.pods, b.pods), cmp.Compare(a.node, b.node))
	}).node, nil
}

func count(fit []candidate, pod *corev1.Pod, pods []*corev1.Pod, place func(*corev1.Pod) string) {
	var owner types.UID
	if ref := metav1.GetControllerOf(pod); ref != nil {
		owner = ref.UID
	}
	index := map[string]*candidate{}
	for i := range fit {
		index[fit[i].node] = &fit[i]
	}
	for _, p := range pods {
		c := index[place(p)]
		if c == nil || p.DeletionTimestamp != nil || finished(p) {
			continue
		}
		c.pods++
		if ref := metav1.GetControllerOf(p); ref != nil && ref.UID == owner {
			c.siblings++
		}
	}
}

// refusal says why the node can't take the pod, in the words of
// kube-scheduler; "" if it can.
func refusal(pod *corev1.Pod, node *corev1.Node) (string, error) {
	if node.Spec.Unschedulable {
		return "node(s) were unschedulable", nil
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil {
		return "", fmt.Errorf("spec.affinity.nodeAffinity of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if !match {
		return "node(s) didn't match Pod's node affinity/selector", nil
	}
	binding := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	taint, found := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, binding, false)
	if found {
		return fmt.Sprintf("node(s) had untolerated taint {%s: %s}", taint.Key, taint.Value), nil
	}
	if !ready(node) {
		return "node(s) were not ready", nil
	}
	return "", nil
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// unschedulableError says that no node fits: not a failure, but a state that
// lasts until the nodes change.
type unschedulableError struct{ message string }

func (e unschedulableError) Error() string { return e.message }

func unschedulable(nodes int, refused map[string]int) error {
	var reasons []string
	for reason, n := range refused {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(reasons)
	message := fmt.Sprintf("0/%d nodes are available", nodes)
	if len(reasons) > 0 {
		message += ": " + strings.Join(reasons, ", ")
	}
	return unschedulableError{message + "."}
}
