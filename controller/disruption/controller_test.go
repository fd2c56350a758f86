package disruption

import (
	"log/slog"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
)

var labels = map[string]string{"app": "web"}

func pod(name string, ready bool, owner metav1.Object, kind string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
	p.Status.Phase = corev1.PodRunning
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	}
	return p
}

// TestAllowed: what a budget allows follows from its Pods and from how many their
// Deployment wants; one that can't be counted allows nothing and says why.
func TestAllowed(t *testing.T) {
	four := int32(4)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "d"}, Spec: appsv1.DeploymentSpec{Replicas: &four}}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-1", UID: "s", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
	}, Spec: appsv1.ReplicaSetSpec{Replicas: &four}}
	owned := []runtime.Object{d, set, pod("a", true, set, "ReplicaSet"), pod("b", true, set, "ReplicaSet"), pod("c", true, set, "ReplicaSet"), pod("d", false, set, "ReplicaSet")}
	bare := []runtime.Object{pod("a", true, nil, ""), pod("b", true, nil, "")}
	for name, c := range map[string]struct {
		objects          []runtime.Object
		least, most      string
		evicted          string
		allowed, desired int32
		reason           string
	}{
		"a number":              {bare, "1", "", "", 1, 1, policyv1.SufficientPodsReason},
		"none too many":         {bare, "2", "", "", 0, 2, policyv1.InsufficientPodsReason},
		"evicted a moment ago":  {bare, "1", "", "a", 0, 1, policyv1.InsufficientPodsReason},
		"percent of the wanted": {owned, "50%", "", "", 1, 2, policyv1.SufficientPodsReason},
		"unavailable":           {owned, "", "2", "", 1, 2, policyv1.SufficientPodsReason},
		"percent unavailable":   {owned, "", "25%", "", 0, 3, policyv1.InsufficientPodsReason},
		"of an unknown owner":   {[]runtime.Object{pod("a", true, d, "StatefulSet")}, "", "1", "", 0, 0, policyv1.SyncFailedReason},
		"a number doesn't care": {[]runtime.Object{pod("a", true, d, "StatefulSet")}, "0", "", "", 1, 0, policyv1.SufficientPodsReason},
	} {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		if c.least != "" {
			v := intstr.Parse(c.least)
			budget.Spec.MinAvailable = &v
		}
		if c.most != "" {
			v := intstr.Parse(c.most)
			budget.Spec.MaxUnavailable = &v
		}
		if c.evicted != "" {
			budget.Status.DisruptedPods = map[string]metav1.Time{c.evicted: metav1.NewTime(time.Now())}
		}
		client := fake.NewClientset(append([]runtime.Object{budget}, c.objects...)...)
		controller := New(client, slog.New(slog.DiscardHandler))
		if err := controller.look(t.Context()); (err != nil) != (c.reason == policyv1.SyncFailedReason) {
			t.Errorf("%s: %v", name, err)
		}
		got, err := client.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s := got.Status
		condition := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
		if s.DisruptionsAllowed != c.allowed || s.DesiredHealthy != c.desired || s.ObservedGeneration != 1 || condition == nil || condition.Reason != c.reason {
			t.Errorf("%s: %+v; want %d allowed, %d desired, %s", name, s, c.allowed, c.desired, c.reason)
		}
	}
}
