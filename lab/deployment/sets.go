package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// state is a Deployment with its ReplicaSets.
type state struct {
	deployment *appsv1.Deployment
	current    *appsv1.ReplicaSet   // of the present template; nil if there is none
	old        []*appsv1.ReplicaSet // of earlier ones, oldest first
	now        time.Time
	// collision: the name of the present template's ReplicaSet is taken.
	collision bool
}

// sets are all ReplicaSets: the old ones, then the current one.
func (s *state) sets() []*appsv1.ReplicaSet {
	if s.current == nil {
		return slices.Clone(s.old)
	}
	return append(slices.Clone(s.old), s.current)
}

// replace puts a newer form in the place that sets gave a ReplicaSet.
func (s *state) replace(i int, set *appsv1.ReplicaSet) {
	if i < len(s.old) {
		s.old[i] = set
	} else {
		s.current = set
	}
}

// observe finds the ReplicaSets that the Deployment controls and selects.
func (c *Controller) observe(d *appsv1.Deployment) (state, error) {
	s := state{deployment: d, now: time.Now()}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return s, fmt.Errorf("spec.selector: %w", err)
	}
	sets, err := c.sets.ReplicaSets(d.Namespace).List(selector)
	if err != nil {
		return s, fmt.Errorf("list replicasets: %w", err)
	}
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, set := range sets {
		switch {
		case !metav1.IsControlledBy(set, d) || set.Spec.Replicas == nil:
		case s.current == nil && sameTemplate(&set.Spec.Template, &d.Spec.Template):
			s.current = set
		default:
			s.old = append(s.old, set)
		}
	}
	return s, nil
}

// sameTemplate compares templates but for the label pod-template-hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	delete(a.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(b.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(a, b)
}

// templateHash tells templates apart: the label pod-template-hash of their pods.
// The number of collisions so far makes another hash of the same template.
func templateHash(d *appsv1.Deployment) (string, error) {
	encoded, err := json.Marshal(d.Spec.Template) // maps in the order of their keys
	if err != nil {
		return "", fmt.Errorf("encode pod template: %w", err)
	}
	h := fnv.New32a()
	h.Write(encoded)
	if n := d.Status.CollisionCount; n != nil {
		fmt.Fprint(h, *n)
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32())), nil
}

// newSet makes the ReplicaSet of the Deployment's present template.
func newSet(d *appsv1.Deployment, replicas int32) (*appsv1.ReplicaSet, error) {
	hash, err := templateHash(d)
	if err != nil {
		return nil, err
	}
	const maxName = 253 - len("-") - 10
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name[:min(len(d.Name), maxName)] + "-" + hash,
			Annotations: inherited(d),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")),
			},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, MinReadySeconds: d.Spec.MinReadySeconds,
			Selector: d.Spec.Selector.DeepCopy(), Template: *d.Spec.Template.DeepCopy(),
		},
	}
	if set.Spec.Template.Labels == nil {
		set.Spec.Template.Labels = map[string]string{}
	}
	set.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	set.Labels = maps.Clone(set.Spec.Template.Labels)
	set.Spec.Selector = metav1.CloneSelectorAndAddLabel(set.Spec.Selector, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	return set, nil
}

// create makes the ReplicaSet of the present template.
func (c *Controller) create(ctx context.Context, s *state, replicas int32) error {
	set, err := newSet(s.deployment, replicas)
	if err != nil {
		return err
	}
	sizes, err := s.sizes()
	if err != nil {
		return err
	}
	maps.Copy(set.Annotations, sizes)
	set.Annotations[revisionAnnotation] = fmt.Sprint(s.newestRevision() + 1)
	client := c.client.AppsV1().ReplicaSets(set.Namespace)
	created, err := client.Create(ctx, set, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		there, err := client.Get(ctx, set.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get replicaset: %w", err)
		}
		if metav1.IsControlledBy(there, s.deployment) && sameTemplate(&there.Spec.Template, &s.deployment.Spec.Template) {
			return nil // the informer will show it
		}
		s.collision = true
		return nil
	}
	if err != nil {
		c.events.Eventf(s.deployment, corev1.EventTypeWarning, "ReplicaSetCreateError", "Failed to create new replica set %q: %v", set.Name, err)
		return fmt.Errorf("create replicaset: %w", err)
	}
	s.current = created
	c.events.Eventf(s.deployment, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", created.Name, replicas)
	return nil
}

// forgetOld deletes the oldest ReplicaSets beyond the history's limit.
func (c *Controller) forgetOld(ctx context.Context, s state) error {
	if s.deployment.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	empty := slices.DeleteFunc(slices.Clone(s.old), func(set *appsv1.ReplicaSet) bool {
		return *set.Spec.Replicas != 0 || set.Status.Replicas != 0 || set.Generation > set.Status.ObservedGeneration || set.DeletionTimestamp != nil
	})
	slices.SortFunc(empty, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revision(a), revision(b)) })
	for len(empty) > int(*s.deployment.Spec.RevisionHistoryLimit) {
		err := c.client.AppsV1().ReplicaSets(empty[0].Namespace).Delete(ctx, empty[0].Name, *metav1.NewPreconditionDeleteOptions(string(empty[0].UID)))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete replicaset %s: %w", empty[0].Name, err)
		}
		empty = empty[1:]
	}
	return nil
}
