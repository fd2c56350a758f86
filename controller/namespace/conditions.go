package namespace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setConditions writes into status why the namespace is still there, in
// Kubernetes' words, and reports whether that is news.
func setConditions(status *corev1.NamespaceStatus, left *remains) bool {
	news := set(status, corev1.NamespaceDeletionDiscoveryFailure,
		left.discovery != nil, "DiscoveryFailed", text(left.discovery),
		"ResourcesDiscovered", "All resources successfully discovered")
	news = set(status, corev1.NamespaceDeletionContentFailure,
		left.deletion != nil, "ContentDeletionFailed", "Failed to delete all resource types, "+text(left.deletion),
		"ContentDeleted", "All content successfully deleted, may be waiting on finalization") || news
	news = set(status, corev1.NamespaceContentRemaining,
		len(left.resources) > 0, "SomeResourcesRemain", "Some resources are remaining: "+count(left.resources, "%s has %d resource instances"),
		"ContentRemoved", "All content successfully removed") || news
	return set(status, corev1.NamespaceFinalizersRemaining,
		len(left.finalizers) > 0, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+count(left.finalizers, "%s in %d resource instances"),
		"ContentHasNoFinalizers", "All content-preserving finalizers finished") || news
}

func set(status *corev1.NamespaceStatus, kind corev1.NamespaceConditionType, is bool, reason, message, notReason, notMessage string) bool {
	condition := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	if !is {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, notReason, notMessage
	}
	i := slices.IndexFunc(status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
	if i < 0 {
		condition.LastTransitionTime = metav1.Now()
		status.Conditions = append(status.Conditions, condition)
		return true
	}
	old := status.Conditions[i]
	condition.LastTransitionTime = old.LastTransitionTime
	if old == condition {
		return false
	}
	if old.Status != condition.Status {
		condition.LastTransitionTime = metav1.Now()
	}
	status.Conditions[i] = condition
	return true
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func count(of map[string]int, format string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf(format, name, of[name]))
	}
	return strings.Join(parts, ", ")
}
