// Package namespace empties namespaces that are being deleted: everything in
// them, of every kind that the server has, goes before the namespace does.
package namespace

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
)

const (
	workers = 4
	// lookAgain is the time until the next look at content that takes its
	// time, such as Pods that end gracefully.
	lookAgain = 500 * time.Millisecond
)

// Controller empties namespaces.
type Controller struct {
	cluster    *cluster.Cache
	objects    metadata.Interface
	namespaces *queue.Queue[string]
}

// New returns the controller, its handlers added to c.
func New(c *cluster.Cache, objects metadata.Interface, log *slog.Logger) (*Controller, error) {
	controller := &Controller{cluster: c, objects: objects}
	controller.namespaces = queue.New(log, controller.sync)
	if err := c.OnNamespace(controller.namespaceChanged); err != nil {
		return nil, fmt.Errorf("watch Namespaces: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) { c.namespaces.Run(ctx, workers) }

func (c *Controller) namespaceChanged(_, new *corev1.Namespace) {
	if new != nil && new.DeletionTimestamp != nil {
		c.namespaces.Add(new.Name)
	}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	// Asked of the server, since much may be deleted on the strength of it.
	namespace, err := c.cluster.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Namespace %s: %w", name, err)
	}
	if namespace.DeletionTimestamp == nil || !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return nil
	}
	if namespace, err = c.terminating(ctx, namespace); err != nil {
		return err
	}
	left := c.empty(ctx, name)
	if left.empty() {
		return c.finalize(ctx, namespace)
	}
	if err := c.report(ctx, namespace, left); err != nil {
		return err
	}
	if left.deletion != nil {
		return fmt.Errorf("empty Namespace %s: %w", name, left.deletion)
	}
	if left.discovery != nil {
		return fmt.Errorf("empty Namespace %s: %w", name, left.discovery)
	}
	c.namespaces.AddAfter(name, lookAgain)
	return nil
}

// terminating sets the phase that makes the server refuse new content.
func (c *Controller) terminating(ctx context.Context, namespace *corev1.Namespace) (*corev1.Namespace, error) {
	if namespace.Status.Phase == corev1.NamespaceTerminating {
		return namespace, nil
	}
	namespace.Status.Phase = corev1.NamespaceTerminating
	updated, err := c.cluster.Client.CoreV1().Namespaces().UpdateStatus(ctx, namespace, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("set phase of Namespace %s: %w", namespace.Name, err)
	}
	return updated, nil
}

// report writes what is left into the namespace's conditions.
func (c *Controller) report(ctx context.Context, namespace *corev1.Namespace, left *remains) error {
	if !setConditions(&namespace.Status, left) {
		return nil
	}
	_, err := c.cluster.Client.CoreV1().Namespaces().UpdateStatus(ctx, namespace, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set conditions of Namespace %s: %w", namespace.Name, err)
	}
	return nil
}

// finalize lets go of the namespace, which the server then removes.
func (c *Controller) finalize(ctx context.Context, namespace *corev1.Namespace) error {
	namespace.Spec.Finalizers = slices.DeleteFunc(namespace.Spec.Finalizers, func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
	_, err := c.cluster.Client.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize Namespace %s: %w", namespace.Name, err)
	}
	return nil
}
