package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// TestSelectionAgainstScan changes Pods and Services at random and compares
// the index with a scan of everything.
func TestSelectionAgainstScan(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	index := newSelection()
	pods, services := map[string]*corev1.Pod{}, map[string]*corev1.Service{}
	for step := range 3000 {
		name := fmt.Sprint("o", random.IntN(20))
		namespace := fmt.Sprint("ns", random.IntN(2))
		id := namespace + "/" + name
		if random.IntN(3) == 0 {
			changed := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			changed.Spec.Selector = randomLabels(random)
			gone := random.IntN(4) == 0
			if index.changeService(changed, gone); gone {
				delete(services, id)
			} else {
				services[id] = changed
			}
		} else {
			changed := randomPod(random, namespace, name)
			if random.IntN(4) == 0 {
				changed = nil
			}
			old := pods[id]
			if old == nil && changed == nil {
				continue
			}
			concerned := index.changePod(old, changed)
			if changed == nil {
				delete(pods, id)
			} else {
				pods[id] = changed
			}
			checkConcerned(t, concerned, services, old, changed)
		}
		if step%10 == 0 {
			checkSelections(t, index, pods, services)
		}
	}
	for _, pod := range pods {
		index.changePod(pod, nil)
	}
	for _, service := range services {
		index.changeService(service, true)
	}
	if n := len(index.pods) + len(index.nodes) + len(index.services) + len(index.filed); n != 0 {
		t.Errorf("%d entries are left of nothing", n)
	}
}

func randomLabels(random *rand.Rand) map[string]string {
	set := map[string]string{}
	for _, k := range []string{"app", "tier", "track"} {
		if random.IntN(2) == 0 {
			set[k] = fmt.Sprint(random.IntN(3))
		}
	}
	return set
}

func randomPod(random *rand.Rand, namespace, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: randomLabels(random)}}
	pod.Spec.NodeName = fmt.Sprint("n", random.IntN(3))
	pod.Status.PodIP = fmt.Sprint("10.0.0.", random.IntN(2))
	return pod
}

func selects(service *corev1.Service, pod *corev1.Pod) bool {
	return pod != nil && service.Namespace == pod.Namespace && len(service.Spec.Selector) > 0 &&
		labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
}

func checkConcerned(t *testing.T, got []types.NamespacedName, services map[string]*corev1.Service, old, new *corev1.Pod) {
	t.Helper()
	var want []types.NamespacedName
	if old == nil || new == nil || endpointChanged(old, new) {
		for _, service := range services {
			if selects(service, old) || selects(service, new) {
				want = append(want, key(service))
			}
		}
	}
	if !sameSet(got, want) {
		t.Fatalf("change from %v to %v concerns %v, not %v", old, new, want, got)
	}
}

func checkSelections(t *testing.T, index *selection, pods map[string]*corev1.Pod, services map[string]*corev1.Service) {
	t.Helper()
	onNode := map[string][]types.NamespacedName{}
	for _, service := range services {
		var want, got []types.NamespacedName
		for _, pod := range pods {
			if selects(service, pod) {
				want = append(want, key(pod))
				onNode[pod.Spec.NodeName] = append(onNode[pod.Spec.NodeName], key(service))
			}
		}
		for _, pod := range index.podsFor(service.Namespace, service.Spec.Selector) {
			got = append(got, key(pod))
		}
		if !sameSet(got, want) {
			t.Fatalf("selector %v selects %v, not %v", service.Spec.Selector, want, got)
		}
	}
	for node, want := range onNode {
		if got := index.servicesOn(node); !sameSet(got, want) {
			t.Fatalf("node %s has Pods of %v, not %v", node, want, got)
		}
	}
}

func sameSet(a, b []types.NamespacedName) bool {
	compare := func(x, y types.NamespacedName) int { return strings.Compare(x.String(), y.String()) }
	slices.SortFunc(a, compare)
	slices.SortFunc(b, compare)
	return slices.Equal(a, b)
}
