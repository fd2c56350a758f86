// Package serviceaccount gives every namespace its ServiceAccount `default`, and
// the ConfigMap kube-root-ca.crt by which its Pods know the API server.
package serviceaccount

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/controller/queue"
)

const (
	defaultName = "default"
	rootCA      = "kube-root-ca.crt"
)

// Controller gives namespaces what every one has.
type Controller struct {
	cluster    *cluster.Cache
	ca         []byte
	namespaces *queue.Queue[string]
}

// New returns the controller, its handlers added to c. Without a CA there are
// no ConfigMaps.
func New(c *cluster.Cache, ca []byte, log *slog.Logger) (*Controller, error) {
	controller := &Controller{cluster: c, ca: ca}
	controller.namespaces = queue.New(log, controller.sync)
	err := c.OnNamespace(func(_, new *corev1.Namespace) {
		if new != nil && new.DeletionTimestamp == nil {
			controller.namespaces.Add(new.Name)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch Namespaces: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) { c.namespaces.Run(ctx, 1) }

func (c *Controller) sync(ctx context.Context, namespace string) error {
	core := c.cluster.Client.CoreV1()
	_, err := core.ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultName}}, metav1.CreateOptions{})
	if err := harmless(err); err != nil {
		return fmt.Errorf("create ServiceAccount %s/%s: %w", namespace, defaultName, err)
	}
	if len(c.ca) == 0 {
		return nil
	}
	_, err = core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: rootCA}, Data: map[string]string{"ca.crt": string(c.ca)},
	}, metav1.CreateOptions{})
	if err := harmless(err); err != nil {
		return fmt.Errorf("create ConfigMap %s/%s: %w", namespace, rootCA, err)
	}
	return nil
}

// harmless drops errors that say that there is nothing to do: the object is
// there, or its namespace is going.
func harmless(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
