package podgc

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// silentTolerance is how long a Pod that says nothing of it stays on a node that
// is silent: what Kubernetes' admission (DefaultTolerationSeconds) writes into
// every Pod.
const silentTolerance = 300 * time.Second

// evicted reports whether a taint with the effect NoExecute drives a Pod from its
// node by now: one that no toleration of the Pod matches at once, others when the
// shortest time of those that match is over.
func evicted(pod *corev1.Pod, taints []corev1.Taint, now time.Time) bool {
	for i := range taints {
		taint := &taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		stays, forever := tolerance(pod, taint)
		if forever {
			continue
		}
		if taint.TimeAdded == nil && stays > 0 {
			continue // nobody says since when; kubectl and the controllers do
		}
		if stays <= 0 || now.Sub(taint.TimeAdded.Time) >= stays {
			return true
		}
	}
	return false
}

// tolerance is how long a Pod stays on a node with a taint.
func tolerance(pod *corev1.Pod, taint *corev1.Taint) (stays time.Duration, forever bool) {
	forever = true
	matched := false
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		if !t.ToleratesTaint(klog.Background(), taint, true) {
			continue
		}
		if t.TolerationSeconds == nil {
			matched = true
			continue
		}
		if period := time.Duration(*t.TolerationSeconds) * time.Second; !matched || forever || period < stays {
			stays, forever = period, false
		}
		matched = true
	}
	switch {
	case matched:
		return stays, forever
	case slices.Contains([]string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady}, taint.Key):
		return silentTolerance, false
	}
	return 0, false
}
