package podgc

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestEvicted: which Pods leave a node with taints, and when.
func TestEvicted(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-d))) }
	silent := func(d time.Duration) corev1.Taint {
		return corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: ago(d)}
	}
	upgrade := corev1.Taint{Key: "upgrade", Value: "now", Effect: corev1.TaintEffectNoExecute, TimeAdded: ago(time.Minute)}
	for name, c := range map[string]struct {
		tolerations []corev1.Toleration
		taints      []corev1.Taint
		want        bool
	}{
		"no taint":                     {},
		"silent for a moment":          {nil, []corev1.Taint{silent(time.Minute)}, false},
		"silent for long":              {nil, []corev1.Taint{silent(5 * time.Minute)}, true},
		"only unschedulable":           {nil, []corev1.Taint{{Key: "upgrade", Effect: corev1.TaintEffectNoSchedule}}, false},
		"a taint that isn't tolerated": {nil, []corev1.Taint{upgrade}, true},
		"without a time":               {nil, []corev1.Taint{{Key: "upgrade", Effect: corev1.TaintEffectNoExecute}}, true},
		"tolerated":                    {[]corev1.Toleration{{Key: "upgrade", Operator: corev1.TolerationOpExists}}, []corev1.Taint{upgrade}, false},
		"another value":                {[]corev1.Toleration{{Key: "upgrade", Value: "later"}}, []corev1.Taint{upgrade}, true},
		"all tolerated":                {[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, []corev1.Taint{upgrade, silent(time.Hour)}, false},
		"one of two tolerated":         {[]corev1.Toleration{{Key: "upgrade", Operator: corev1.TolerationOpExists}}, []corev1.Taint{upgrade, silent(time.Hour)}, true},
		"tolerated still":              {[]corev1.Toleration{{Key: "upgrade", Value: "now", TolerationSeconds: ptr.To[int64](61)}}, []corev1.Taint{upgrade}, false},
		"tolerated no more":            {[]corev1.Toleration{{Key: "upgrade", Value: "now", TolerationSeconds: ptr.To[int64](60)}}, []corev1.Taint{upgrade}, true},
		"not tolerated at all":         {[]corev1.Toleration{{Key: "upgrade", Value: "now", TolerationSeconds: ptr.To[int64](0)}}, []corev1.Taint{upgrade}, true},
		"the shortest time counts": {[]corev1.Toleration{
			{Key: "upgrade", Operator: corev1.TolerationOpExists}, {Key: "upgrade", Value: "now", TolerationSeconds: ptr.To[int64](100)}, {Key: "upgrade", Value: "now", TolerationSeconds: ptr.To[int64](30)},
		}, []corev1.Taint{upgrade}, true},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1", Tolerations: c.tolerations}}
		if got := evicted(pod, c.taints, now); got != c.want {
			t.Errorf("%s: evicted %v, want %v", name, got, c.want)
		}
	}
}
