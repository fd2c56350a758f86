// Package clusterroles fills aggregated ClusterRoles: those with an
// aggregationRule have the rules of all roles that it selects.
package clusterroles

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fairway-net/fairway/internal/queue"
)

// Controller fills aggregated ClusterRoles.
type Controller struct {
	client kubernetes.Interface
	roles  rbaclisters.ClusterRoleLister
	queue  *queue.Queue[string]
}

// New returns the controller.
func New(client kubernetes.Interface, log *slog.Logger) *Controller {
	c := &Controller{client: client}
	c.queue = queue.New(log, c.sync)
	return c
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(c.client, 0)
	roles := factory.Rbac().V1().ClusterRoles()
	c.roles = roles.Lister()
	all := func(any) { c.enqueueAggregated() }
	// The informer is new: a handler can always be added.
	_, _ = roles.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: all, UpdateFunc: func(_, obj any) { all(obj) }, DeleteFunc: all})
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), roles.Informer().HasSynced) {
		return
	}
	c.queue.Run(ctx, 1)
}

// enqueueAggregated has every aggregated role looked at: a change of one role
// may be one of several.
func (c *Controller) enqueueAggregated() {
	list, err := c.roles.List(labels.Everything())
	if err != nil {
		return // a lister over memory has no errors
	}
	for _, role := range list {
		if role.AggregationRule != nil {
			c.queue.Add(role.Name)
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	role, err := c.roles.Get(name)
	if apierrors.IsNotFound(err) || err == nil && role.AggregationRule == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find ClusterRole %s: %w", name, err)
	}
	rules, err := c.rules(role)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		return nil
	}
	role = role.DeepCopy()
	role.Rules = rules
	if _, err := c.client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("fill ClusterRole %s: %w", name, err)
	}
	return nil
}

// rules are those of all selected roles, each once, in the order of their names.
func (c *Controller) rules(role *rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("selector of ClusterRole %s: %w", role.Name, err)
		}
		selected, err := c.roles.List(selector)
		if err != nil {
			return nil, fmt.Errorf("list ClusterRoles: %w", err)
		}
		slices.SortFunc(selected, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
		for _, s := range selected {
			if s.Name == role.Name {
				continue
			}
			for _, rule := range s.Rules {
				same := func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }
				if !slices.ContainsFunc(rules, same) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}
