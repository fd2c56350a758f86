package deployment

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations that kubectl reads and that other controllers know.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
)

// revision is a ReplicaSet's place in the history, 0 if it has none.
func revision(set *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// newestRevision is that of the old ReplicaSets.
func (s *state) newestRevision() int64 {
	var newest int64
	for _, set := range s.old {
		newest = max(newest, revision(set))
	}
	return newest
}

// annotations are an object's, to be written to.
func annotations(o metav1.Object) map[string]string {
	if o.GetAnnotations() == nil {
		o.SetAnnotations(map[string]string{})
	}
	return o.GetAnnotations()
}

// has says whether a map has all pairs of another.
func has(m, wanted map[string]string) bool {
	for k, v := range wanted {
		if there, ok := m[k]; !ok || there != v {
			return false
		}
	}
	return true
}

// inherited are the annotations of a Deployment that its ReplicaSet gets: the
// cause of the change among them.
func inherited(d *appsv1.Deployment) map[string]string {
	out := map[string]string{}
	for k, v := range d.Annotations {
		switch k {
		case corev1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation, desiredAnnotation, maxAnnotation, appsv1.DeprecatedRollbackTo:
		default:
			out[k] = v
		}
	}
	return out
}

// sizes are the annotations that say how many replicas the Deployment wanted.
func (s *state) sizes() (map[string]string, error) {
	surge, _, err := limits(s.deployment)
	if err != nil {
		return nil, err
	}
	desired := *s.deployment.Spec.Replicas
	return map[string]string{desiredAnnotation: fmt.Sprint(desired), maxAnnotation: fmt.Sprint(desired + surge)}, nil
}

// annotate gives the current ReplicaSet the newest revision, when an earlier
// template is back, and the Deployment's own annotations.
func (c *Controller) annotate(ctx context.Context, s *state) error {
	set := s.current
	if set == nil {
		return nil
	}
	wanted := inherited(s.deployment)
	if newest := s.newestRevision() + 1; revision(set) < newest {
		wanted[revisionAnnotation] = fmt.Sprint(newest)
		if before := set.Annotations[revisionAnnotation]; before != "" {
			wanted[historyAnnotation] = strings.TrimPrefix(set.Annotations[historyAnnotation]+","+before, ",")
		}
	}
	if has(set.Annotations, wanted) && set.Spec.MinReadySeconds == s.deployment.Spec.MinReadySeconds {
		return nil
	}
	changed := set.DeepCopy()
	changed.Spec.MinReadySeconds = s.deployment.Spec.MinReadySeconds
	maps.Copy(annotations(changed), wanted)
	changed, err := c.client.AppsV1().ReplicaSets(set.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("annotate replicaset %s: %w", set.Name, err)
	}
	s.current = changed
	return nil
}

// writeRevision says in the Deployment which revision it is at.
func (c *Controller) writeRevision(ctx context.Context, s *state) error {
	if s.current == nil {
		return nil
	}
	at := s.current.Annotations[revisionAnnotation]
	if s.deployment.Annotations[revisionAnnotation] == at {
		return nil
	}
	changed := s.deployment.DeepCopy()
	annotations(changed)[revisionAnnotation] = at
	changed, err := c.client.AppsV1().Deployments(changed.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write revision: %w", err)
	}
	s.deployment = changed
	return nil
}
