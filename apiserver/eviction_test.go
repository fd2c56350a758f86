package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestEvictionSpendsBudget: a Pod is evicted as long as its budget allows it, and a
// refusal names the budget.
func TestEvictionSpendsBudget(t *testing.T) {
	s := sharedServer(t)
	c := client(t, s)
	ctx := within(t)
	for _, name := range []string{"a", "b"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}
		pod, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if _, err := c.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	one := intstr.FromInt32(1)
	budget, err := c.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	evict := func(name string, dryRun ...string) error {
		return c.CoreV1().Pods("default").EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
		})
	}
	// The answer says to try again in ten seconds, which clients do ten times.
	err = c.CoreV1().RESTClient().Post().MaxRetries(0).Namespace("default").Resource("pods").Name("a").SubResource("eviction").
		Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}).Do(ctx).Error()
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("evicted before the budget was counted: %v", err)
	}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2}
	if _, err := c.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(ctx, budget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := evict("a", metav1.DryRunAll); err != nil {
		t.Errorf("tried: %v", err)
	}
	if err := evict("a"); err != nil {
		t.Errorf("evict the first: %v", err)
	}
	if err := evict("b"); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("evict the second: %v; want a refusal", err)
	}
	budget, err = c.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "web", metav1.GetOptions{})
	if err != nil || budget.Status.DisruptionsAllowed != 0 || len(budget.Status.DisruptedPods) != 1 {
		t.Errorf("the budget: %+v, %v", budget.Status, err)
	}
	if err := c.PolicyV1().PodDisruptionBudgets("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := evict("b"); err != nil {
		t.Errorf("without a budget: %v", err)
	}
	if err := evict("c"); !apierrors.IsNotFound(err) {
		t.Errorf("evict what isn't there: %v", err)
	}
}

// TestEventsGroup: events.k8s.io and core show the same objects, each in its form.
func TestEventsGroup(t *testing.T) {
	s := sharedServer(t)
	c := client(t, s)
	ctx := within(t)
	watch, err := c.EventsV1().Events("default").Watch(ctx, metav1.ListOptions{FieldSelector: "regarding.name=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	about := corev1.ObjectReference{Kind: "Service", Namespace: "default", Name: "web"}
	if _, err := c.EventsV1().Events("default").Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "new"}, Regarding: about, Note: "said anew", Reason: "Tested", Type: "Normal",
		EventTime: metav1.NowMicro(), ReportingController: "test", ReportingInstance: "test-1", Action: "Testing",
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	old, err := c.CoreV1().Events("default").Get(ctx, "new", metav1.GetOptions{})
	if err != nil || old.Message != "said anew" || old.InvolvedObject != about || old.APIVersion != "" && old.APIVersion != "v1" {
		t.Errorf("in core: %+v, %v", old, err)
	}
	if shown, ok := (<-watch.ResultChan()).Object.(*eventsv1.Event); !ok || shown.Note != "said anew" {
		t.Errorf("watched: %+v", shown)
	}
	if _, err := c.CoreV1().Events("default").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "old"}, InvolvedObject: about, Message: "said before", Count: 3,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := c.EventsV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=web"})
	if err != nil || len(list.Items) != 2 || list.Items[1].Note != "said before" || list.Items[1].DeprecatedCount != 3 {
		t.Errorf("in events.k8s.io: %+v, %v", list, err)
	}
	// In this group what an Event says stays.
	patch := func(text string) (*eventsv1.Event, error) {
		return c.EventsV1().Events("default").Patch(ctx, "old", types.MergePatchType, []byte(text), metav1.PatchOptions{})
	}
	if _, err := patch(`{"note":"said better"}`); !apierrors.IsInvalid(err) {
		t.Errorf("a changed note: %v", err)
	}
	if patched, err := patch(`{"metadata":{"labels":{"a":"b"}}}`); err != nil || patched.Labels["a"] != "b" {
		t.Errorf("patched: %+v, %v", patched, err)
	}
	out := kubectl(t, s, "", "get", "events.v1.events.k8s.io", "old", "-o", "yaml")
	if !strings.Contains(out, "apiVersion: events.k8s.io/v1") || !strings.Contains(out, "note: said before") {
		t.Errorf("kubectl shows\n%s", out)
	}
	kubectl(t, s, "apiVersion: events.k8s.io/v1\nkind: Event\nmetadata: {name: old, labels: {a: c}}\n", "apply", "--server-side", "--force-conflicts", "-f", "-")
	if old, err = c.CoreV1().Events("default").Get(ctx, "old", metav1.GetOptions{}); err != nil || old.Labels["a"] != "c" || old.Message != "said before" {
		t.Errorf("applied: %+v, %v", old, err)
	}
}
