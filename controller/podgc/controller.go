// Package podgc deletes Pods that nobody else deletes: at once, Pods in deletion
// on a node without a kubelet, and Pods whose node is gone; with their grace
// period, Pods that a taint of their node evicts.
//
//   - controller.go: looks at all Pods now and then
//   - evict.go: what taints mean for them
package podgc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/kube/ownnode"
)

const (
	lookPeriod = 2 * time.Second
	// orphanTime is how long the node of a Pod has to appear: objects come in
	// any order.
	orphanTime = 40 * time.Second
)

// Controller looks at all Pods that have a node now and then.
type Controller struct {
	cluster *cluster.Cache
	log     *slog.Logger
	now     func() time.Time
	// orphaned is since when the node of a Pod hasn't been there.
	orphaned map[string]time.Time
}

// New returns the controller.
func New(c *cluster.Cache, log *slog.Logger) (*Controller, error) {
	return &Controller{cluster: c, log: log, now: time.Now, orphaned: map[string]time.Time{}}, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("Pods of deleted nodes could not be deleted; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reads from the server's memory: a Pod that is deleted twice is gone all
// the same.
func (c *Controller) look(ctx context.Context) error {
	pods, err := c.cluster.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermNotEqualSelector("spec.nodeName", "").String(), ResourceVersion: "0",
	})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	missing := map[string]time.Time{}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		node, err := c.cluster.Nodes.Get(pod.Spec.NodeName)
		if apierrors.IsNotFound(err) {
			missing[pod.Spec.NodeName] = c.missingSince(pod.Spec.NodeName)
		} else if err != nil {
			return fmt.Errorf("find Node %s: %w", pod.Spec.NodeName, err)
		}
		switch {
		case c.abandoned(pod, node, missing[pod.Spec.NodeName]):
			errs = append(errs, c.delete(ctx, pod, true))
		case pod.DeletionTimestamp == nil && node != nil && evicted(pod, node.Spec.Taints, c.now()):
			c.log.Info("a taint of the node evicts a Pod", "namespace", pod.Namespace, "pod", pod.Name, "node", node.Name)
			errs = append(errs, c.delete(ctx, pod, false))
		}
	}
	c.orphaned = missing
	return errors.Join(errs...)
}

func (c *Controller) missingSince(node string) time.Time {
	if at, known := c.orphaned[node]; known {
		return at
	}
	return c.now()
}

// abandoned reports whether nobody will end a Pod.
func (c *Controller) abandoned(pod *corev1.Pod, node *corev1.Node, missing time.Time) bool {
	if node == nil {
		return pod.DeletionTimestamp != nil || c.now().Sub(missing) > orphanTime
	}
	return pod.DeletionTimestamp != nil && !runsPods(node)
}

// runsPods reports whether a kubelet runs on a node. Nodes that an agent registered
// are machines without one; they show the agent's version in its place.
func runsPods(node *corev1.Node) bool {
	_, plain := node.Annotations[ownnode.ModeAnnotation]
	return !plain && node.Status.NodeInfo.KubeletVersion != ""
}

// delete deletes a Pod, at once or with the time that it asks for.
func (c *Controller) delete(ctx context.Context, pod *corev1.Pod, atOnce bool) error {
	var options metav1.DeleteOptions
	if atOnce {
		options = *metav1.NewDeleteOptions(0)
	}
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err := c.cluster.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
