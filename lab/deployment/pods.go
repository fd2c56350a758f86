package deployment

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
)

// templateHash tells templates apart: the label pod-template-hash of their pods.
func templateHash(t *corev1.PodTemplateSpec) (string, error) {
	encoded, err := json.Marshal(t) // maps in the order of their keys
	if err != nil {
		return "", fmt.Errorf("encode pod template: %w", err)
	}
	h := fnv.New32a()
	h.Write(encoded)
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32())), nil
}

// newPod makes a pod of the Deployment's template.
func newPod(d *appsv1.Deployment, hash string) *corev1.Pod {
	const maxName = 253 - len("-") - 5
	base := d.Name + "-" + hash
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   d.Namespace,
			Name:        base[:min(len(base), maxName)] + "-" + rand.String(5),
			Labels:      map[string]string{},
			Annotations: maps.Clone(d.Spec.Template.Annotations),
			Finalizers:  d.Spec.Template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")),
			},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	maps.Copy(p.Labels, d.Spec.Template.Labels)
	p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return p
}

// podsOf lists the pods that the Deployment controls and selects.
func (c *Controller) podsOf(d *appsv1.Deployment) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("spec.selector: %w", err)
	}
	selected, err := c.pods.Pods(d.Namespace).List(selector)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return slices.DeleteFunc(selected, func(p *corev1.Pod) bool { return !metav1.IsControlledBy(p, d) }), nil
}

// observe sorts the Deployment's pods into a state.
func observe(d *appsv1.Deployment, hash string, pods []*corev1.Pod) state {
	s := state{deployment: d, now: time.Now()}
	for _, p := range pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case p.DeletionTimestamp != nil:
			s.terminating++
		case p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash:
			s.current = append(s.current, p)
		default:
			s.old = append(s.old, p)
		}
	}
	return s
}

// expectations are writes that the informer hasn't shown yet: until it has, the
// number of pods can't be known, and nothing more is created or deleted.
type expectations struct {
	mu      sync.Mutex
	created map[string]bool // names
	deleted map[types.UID]bool
	expires time.Time // an event may be missed for good: created, deleted and relisted
}

func newExpectations() *expectations {
	return &expectations{created: map[string]bool{}, deleted: map[types.UID]bool{}, expires: time.Now().Add(10 * time.Second)}
}

func (e *expectations) expectCreated(p *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.created[p.Name] = true
}

func (e *expectations) expectDeleted(p *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deleted[p.UID] = true
}

// met says whether the listed pods show all that was written.
func (e *expectations) met(listed []*corev1.Pod) bool {
	if e == nil || !time.Now().Before(e.expires) {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	missing := len(e.created)
	for _, p := range listed {
		if e.created[p.Name] {
			missing--
		}
		if e.deleted[p.UID] && p.DeletionTimestamp == nil {
			return false
		}
	}
	return missing == 0
}
