// Package disruption says in the status of each PodDisruptionBudget how many of
// its Pods may be evicted now. It looks at all budgets now and then; where there
// are none, that costs one list from the server's memory.
package disruption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const (
	lookPeriod = 2 * time.Second
	// disruptedTime is how long an evicted Pod counts as gone before its deletion
	// shows.
	disruptedTime = 2 * time.Minute
)

// Controller looks now and then.
type Controller struct {
	client kubernetes.Interface
	log    *slog.Logger
	now    func() time.Time
}

// New returns the controller.
func New(client kubernetes.Interface, log *slog.Logger) *Controller {
	return &Controller{client: client, log: log, now: time.Now}
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("PodDisruptionBudgets could not be updated; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *Controller) look(ctx context.Context) error {
	budgets, err := c.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list disruption budgets: %w", err)
	}
	var errs []error
	for i := range budgets.Items {
		b := &budgets.Items[i]
		if err := c.sync(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("disruption budget %s/%s: %w", b.Namespace, b.Name, err))
		}
	}
	return errors.Join(errs...)
}

// sync writes a budget's status. One that can't be counted allows nothing, and
// its condition says why.
func (c *Controller) sync(ctx context.Context, b *policyv1.PodDisruptionBudget) error {
	status, err := c.count(ctx, b)
	if err != nil {
		status = b.Status.DeepCopy()
		status.DisruptionsAllowed, status.ObservedGeneration = 0, b.Generation
	}
	condition := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason, ObservedGeneration: b.Generation}
	switch {
	case err != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, policyv1.SyncFailedReason, err.Error()
	case status.DisruptionsAllowed == 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	if equality.Semantic.DeepEqual(*status, b.Status) {
		return err
	}
	changed := b.DeepCopy()
	changed.Status = *status
	_, writeErr := c.client.PolicyV1().PodDisruptionBudgets(b.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(writeErr) || apierrors.IsNotFound(writeErr) {
		writeErr = nil // the next look sees it
	}
	return errors.Join(err, writeErr)
}

// count counts the budget's Pods.
func (c *Controller) count(ctx context.Context, b *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudgetStatus, error) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("spec.selector: %w", err)
	}
	list, err := c.client.CoreV1().Pods(b.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	status := &policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, Conditions: append([]metav1.Condition(nil), b.Status.Conditions...)}
	var pods []*corev1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		pods = append(pods, p)
		if p.DeletionTimestamp != nil {
			continue
		}
		if at, evicted := b.Status.DisruptedPods[p.Name]; evicted && c.now().Sub(at.Time) < disruptedTime {
			if status.DisruptedPods == nil {
				status.DisruptedPods = map[string]metav1.Time{}
			}
			status.DisruptedPods[p.Name] = at
			continue
		}
		if isReady(p) {
			status.CurrentHealthy++
		}
	}
	if err := c.expect(ctx, b, pods, status); err != nil {
		return nil, err
	}
	status.DisruptionsAllowed = max(0, status.CurrentHealthy-status.DesiredHealthy)
	return status, nil
}

// expect says how many Pods there shall be, and how many healthy.
func (c *Controller) expect(ctx context.Context, b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, status *policyv1.PodDisruptionBudgetStatus) error {
	least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	status.ExpectedPods = int32(len(pods))
	if most != nil || least != nil && least.Type == intstr.String {
		n, err := c.replicas(ctx, b.Namespace, pods)
		if err != nil {
			return err
		}
		status.ExpectedPods = n
	}
	expected := int(status.ExpectedPods)
	switch {
	case most != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(most, expected, true)
		if err != nil {
			return fmt.Errorf("spec.maxUnavailable: %w", err)
		}
		status.DesiredHealthy = int32(max(0, expected-n))
	case least != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(least, expected, true)
		if err != nil {
			return fmt.Errorf("spec.minAvailable: %w", err)
		}
		status.DesiredHealthy = int32(n)
	}
	return nil
}

// replicas is how many Pods their controllers want.
func (c *Controller) replicas(ctx context.Context, namespace string, pods []*corev1.Pod) (int32, error) {
	var sum int32
	seen := map[string]bool{}
	for _, p := range pods {
		ref := metav1.GetControllerOf(p)
		if ref == nil {
			sum++ // as many as there are: nobody makes another
			continue
		}
		if ref.Kind != "ReplicaSet" {
			return 0, fmt.Errorf("pod %s is controlled by a %s, whose replicas are not known here: use spec.minAvailable with a number", p.Name, ref.Kind)
		}
		set, err := c.client.AppsV1().ReplicaSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{ResourceVersion: "0"})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("get ReplicaSet: %w", err)
		}
		owner, count := string(set.UID), set.Spec.Replicas
		if of := metav1.GetControllerOf(set); of != nil && of.Kind == "Deployment" {
			d, err := c.client.AppsV1().Deployments(namespace).Get(ctx, of.Name, metav1.GetOptions{ResourceVersion: "0"})
			if err != nil && !apierrors.IsNotFound(err) {
				return 0, fmt.Errorf("get Deployment: %w", err)
			}
			if err == nil {
				owner, count = string(d.UID), d.Spec.Replicas
			}
		}
		if !seen[owner] && count != nil {
			sum += *count
		}
		seen[owner] = true
	}
	return sum, nil
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
