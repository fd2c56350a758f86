package replicaset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
)

// newPod makes a pod of the ReplicaSet's template.
func newPod(set *appsv1.ReplicaSet) *corev1.Pod {
	const maxName = 253 - len("-") - 5
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace,
			Name:      set.Name[:min(len(set.Name), maxName)] + "-" + rand.String(5),
			// What kubectl shows of pods made from a template.
			GenerateName:    set.Name + "-",
			Labels:          maps.Clone(set.Spec.Template.Labels),
			Annotations:     maps.Clone(set.Spec.Template.Annotations),
			Finalizers:      slices.Clone(set.Spec.Template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{controllerRef(set)},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
}

func controllerRef(set *appsv1.ReplicaSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}

// claim returns the pods that the ReplicaSet controls, once it has adopted those
// that it selects and nobody controls, and released those that it selects no
// more.
func (c *Controller) claim(ctx context.Context, set *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("spec.selector: %w", err)
	}
	all, err := c.pods.Pods(set.Namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var claimed []*corev1.Pod
	for _, p := range all {
		selected, ref := selector.Matches(labels.Set(p.Labels)), metav1.GetControllerOf(p)
		switch {
		case ref != nil && ref.UID == set.UID && selected:
			claimed = append(claimed, p)
		case ref != nil && ref.UID == set.UID && set.DeletionTimestamp == nil && p.DeletionTimestamp == nil:
			if err := c.release(ctx, set, p); err != nil {
				return nil, err
			}
		case ref == nil && selected && set.DeletionTimestamp == nil && isActive(p):
			if err := c.adopt(ctx, set, p); err != nil {
				return nil, err
			}
			claimed = append(claimed, p)
		}
	}
	return claimed, nil
}

func isActive(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func (c *Controller) adopt(ctx context.Context, set *appsv1.ReplicaSet, p *corev1.Pod) error {
	return c.patchOwners(ctx, p, append(slices.Clone(p.OwnerReferences), controllerRef(set)))
}

func (c *Controller) release(ctx context.Context, set *appsv1.ReplicaSet, p *corev1.Pod) error {
	return c.patchOwners(ctx, p, slices.DeleteFunc(slices.Clone(p.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == set.UID }))
}

// patchOwners writes a pod's owners if it is still the one that was seen.
func (c *Controller) patchOwners(ctx context.Context, p *corev1.Pod, owners []metav1.OwnerReference) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "resourceVersion": p.ResourceVersion, "ownerReferences": owners,
	}})
	if err != nil {
		return fmt.Errorf("encode owners of pod %s: %w", p.Name, err)
	}
	_, err = c.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write owners of pod %s: %w", p.Name, err)
	}
	return nil
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
