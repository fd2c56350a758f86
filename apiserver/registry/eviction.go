package registry

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/util/retry"
)

// evictionRetry is what a client is told to wait whom a budget refuses.
const evictionRetry = 10 * time.Second

// evictionREST deletes a Pod if its PodDisruptionBudget allows that.
type evictionREST struct {
	pods    *genericregistry.Store
	budgets *statusREST
}

func (r *evictionREST) New() runtime.Object { return &policyv1.Eviction{} }

// Destroy leaves the stores to their owners.
func (r *evictionREST) Destroy() {}

func (r *evictionREST) NamespaceScoped() bool { return true }

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (r *evictionREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policyv1.SchemeGroupVersion.WithKind("Eviction")
}

// Create implements rest.NamedCreater.
func (r *evictionREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not an Eviction: %T", obj))
	}
	if eviction.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	found, err := r.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := found.(*corev1.Pod)
	remove := eviction.DeleteOptions
	if remove == nil {
		remove = &metav1.DeleteOptions{}
	}
	if len(options.DryRun) > 0 {
		remove.DryRun = options.DryRun
	}
	if needsBudget(pod) {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return r.spend(ctx, pod, len(remove.DryRun) > 0) })
		if apierrors.IsConflict(err) {
			return nil, apierrors.NewTooManyRequests("the disruption budget changes all the time: try again", int(evictionRetry.Seconds()))
		}
		if err != nil {
			return nil, err
		}
	}
	if remove.Preconditions == nil {
		remove.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	}
	if _, _, err := r.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, remove); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// needsBudget says whether a Pod serves anybody who would miss it.
func needsBudget(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodPending && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// spend takes one disruption from the Pod's budget, or says why there is none.
func (r *evictionREST) spend(ctx context.Context, pod *corev1.Pod, dryRun bool) error {
	budget, err := r.budgetOf(ctx, pod)
	if budget == nil || err != nil {
		return err
	}
	ready := podReady(pod)
	always := budget.Spec.UnhealthyPodEvictionPolicy != nil && *budget.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
	if s := budget.Status; !ready && (always || s.CurrentHealthy >= s.DesiredHealthy && s.DesiredHealthy > 0) {
		return nil // nobody is served less
	}
	if budget.Status.ObservedGeneration < budget.Generation {
		return apierrors.NewTooManyRequests("The disruption budget "+budget.Name+" is still being processed by the server.", int(evictionRetry.Seconds()))
	}
	if budget.Status.DisruptionsAllowed <= 0 {
		refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: policyv1.DisruptionBudgetCause,
			Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
				budget.Name, budget.Status.DesiredHealthy, budget.Status.CurrentHealthy),
		})
		return refused
	}
	if dryRun {
		return nil
	}
	changed := budget.DeepCopy()
	changed.Status.DisruptionsAllowed--
	if changed.Status.DisruptedPods == nil {
		changed.Status.DisruptedPods = map[string]metav1.Time{}
	}
	changed.Status.DisruptedPods[pod.Name] = metav1.Now()
	_, _, err = r.budgets.Update(ctx, budget.Name, rest.DefaultUpdatedObjectInfo(changed), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return err
}

// budgetOf is the one budget that selects the Pod; nil if there is none.
func (r *evictionREST) budgetOf(ctx context.Context, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	list, err := r.budgets.store.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found *policyv1.PodDisruptionBudget
	budgets := list.(*policyv1.PodDisruptionBudgetList).Items
	for i := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("pod %s has more than one PodDisruptionBudget, which the eviction subresource does not support", pod.Name))
		}
		found = &budgets[i]
	}
	return found, nil
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
