// Package serviceaccount gives every namespace its ServiceAccount `default`, and
// the ConfigMap kube-root-ca.crt by which its Pods know the API server: also when
// somebody has deleted or changed them.
package serviceaccount

import (
	"context"
	"fmt"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
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
	informers  cluster.Informers
	accounts   corelisters.ServiceAccountLister
	configMaps corelisters.ConfigMapLister
}

// New returns the controller, its handlers added to c. Without a CA there are
// no ConfigMaps.
func New(c *cluster.Cache, ca []byte, log *slog.Logger) (*Controller, error) {
	controller := &Controller{cluster: c, ca: ca}
	accounts := controller.informers.Of(c.Client, named(defaultName)).Core().V1().ServiceAccounts()
	configMaps := controller.informers.Of(c.Client, named(rootCA)).Core().V1().ConfigMaps()
	controller.accounts, controller.configMaps = accounts.Lister(), configMaps.Lister()
	controller.namespaces = queue.New(log, controller.sync)
	err := c.OnNamespace(func(_, new *corev1.Namespace) {
		if new != nil && new.DeletionTimestamp == nil {
			controller.namespaces.Add(new.Name)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch Namespaces: %w", err)
	}
	err = controller.informers.Handle(accounts.Informer(), cluster.Change[corev1.ServiceAccount](func(old, new *corev1.ServiceAccount) {
		if new == nil {
			controller.namespaces.Add(old.Namespace)
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("watch ServiceAccounts: %w", err)
	}
	err = controller.informers.Handle(configMaps.Informer(), cluster.Change[corev1.ConfigMap](func(old, new *corev1.ConfigMap) {
		if new == nil {
			new = old
		}
		controller.namespaces.Add(new.Namespace)
	}))
	if err != nil {
		return nil, fmt.Errorf("watch ConfigMaps: %w", err)
	}
	return controller, nil
}

// named selects objects of one name.
func named(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) {
	c.informers.Run(ctx, func() { c.namespaces.Run(ctx, 1) })
}

// sync gives one namespace what it lacks. Its deletion takes both away, and its
// server then refuses new ones.
func (c *Controller) sync(ctx context.Context, namespace string) error {
	if n, err := c.cluster.Namespaces.Get(namespace); err != nil || n.DeletionTimestamp != nil {
		return nil //nolint:nilerr // a cache's error is that there is no such namespace
	}
	if _, err := c.accounts.ServiceAccounts(namespace).Get(defaultName); err != nil {
		_, err := c.cluster.Client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultName}}, metav1.CreateOptions{})
		if err := harmless(err); err != nil {
			return fmt.Errorf("create ServiceAccount %s/%s: %w", namespace, defaultName, err)
		}
	}
	if len(c.ca) == 0 {
		return nil
	}
	return c.syncCA(ctx, namespace)
}

func (c *Controller) syncCA(ctx context.Context, namespace string) error {
	configMaps, data := c.cluster.Client.CoreV1().ConfigMaps(namespace), map[string]string{"ca.crt": string(c.ca)}
	current, err := c.configMaps.ConfigMaps(namespace).Get(rootCA)
	if err != nil {
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: rootCA}, Data: data}, metav1.CreateOptions{})
		if err := harmless(err); err != nil {
			return fmt.Errorf("create ConfigMap %s/%s: %w", namespace, rootCA, err)
		}
		return nil
	}
	if maps.Equal(current.Data, data) {
		return nil
	}
	current = current.DeepCopy()
	current.Data = data
	if _, err := configMaps.Update(ctx, current, metav1.UpdateOptions{}); harmless(err) != nil {
		return fmt.Errorf("restore ConfigMap %s/%s: %w", namespace, rootCA, err)
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
