// Package accounttoken fills Secrets of type kubernetes.io/service-account-token with
// a token of the ServiceAccount that their annotation names, as Kubernetes' token
// controller does, and deletes them with it.
package accounttoken

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
)

// Name is the controller's.
const Name = "serviceaccount-token-controller"

// Issuer makes tokens for Secrets to hold.
type Issuer interface {
	// SecretToken makes one of a ServiceAccount.
	SecretToken(account *corev1.ServiceAccount, secret string) (string, error)
	// IsOutdated reports whether a token ceases to hold soon, since its key is being replaced.
	IsOutdated(token string) bool
}

// Controller fills and deletes Secrets.
type Controller struct {
	client    kubernetes.Interface
	issuer    Issuer
	ca        []byte
	filling   *queue.Queue[types.NamespacedName]
	releasing *queue.Queue[reference]
	informers cluster.Informers
	secrets   corelisters.SecretLister
}

// reference is a ServiceAccount's to a Secret that was deleted.
type reference struct{ namespace, account, secret string }

// New returns the controller. Without a CA, Secrets hold none.
func New(client kubernetes.Interface, issuer Issuer, ca []byte, log *slog.Logger) (*Controller, error) {
	c := &Controller{client: client, issuer: issuer, ca: ca}
	secrets := c.informers.Of(client, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()
	}).Core().V1().Secrets()
	accounts := c.informers.Of(client, nil).Core().V1().ServiceAccounts()
	c.secrets = secrets.Lister()
	c.filling, c.releasing = queue.New(log, c.fill), queue.New(log, c.release)
	if err := c.informers.Handle(secrets.Informer(), cluster.Change[corev1.Secret](c.secretChanged)); err != nil {
		return nil, fmt.Errorf("watch Secrets: %w", err)
	}
	if err := c.informers.Handle(accounts.Informer(), cluster.Change[corev1.ServiceAccount](c.accountChanged)); err != nil {
		return nil, fmt.Errorf("watch ServiceAccounts: %w", err)
	}
	return c, nil
}

func (c *Controller) secretChanged(old, new *corev1.Secret) {
	if new != nil {
		c.filling.Add(types.NamespacedName{Namespace: new.Namespace, Name: new.Name})
		return
	}
	if account := old.Annotations[corev1.ServiceAccountNameKey]; account != "" {
		c.releasing.Add(reference{old.Namespace, account, old.Name})
	}
}

// accountChanged looks at a ServiceAccount's Secrets when it is made or gone.
func (c *Controller) accountChanged(old, new *corev1.ServiceAccount) {
	if old != nil && new != nil && old.UID == new.UID {
		return
	}
	account := new
	if account == nil {
		account = old
	}
	list, err := c.secrets.Secrets(account.Namespace).List(labels.Everything())
	if err != nil {
		return // a cache has none
	}
	for _, s := range list {
		if s.Annotations[corev1.ServiceAccountNameKey] == account.Name {
			c.filling.Add(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
		}
	}
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	c.informers.Run(ctx, func() {
		var running sync.WaitGroup
		running.Go(func() { c.releasing.Run(ctx, 1) })
		running.Go(func() { c.filling.Run(ctx, 2) })
		running.Wait()
	})
}

// fill makes a Secret what its type says, or deletes it if its ServiceAccount is
// gone, or is another one of that name.
func (c *Controller) fill(ctx context.Context, name types.NamespacedName) error {
	secret, err := c.secrets.Secrets(name.Namespace).Get(name.Name)
	if err != nil || secret.DeletionTimestamp != nil {
		return nil //nolint:nilerr // a cache's error is that there is no such Secret
	}
	of := secret.Annotations[corev1.ServiceAccountNameKey]
	if of == "" { // it was written before such Secrets were refused
		return nil
	}
	account, err := c.client.CoreV1().ServiceAccounts(name.Namespace).Get(ctx, of, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get ServiceAccount of Secret %s: %w", name, err)
	}
	uid := secret.Annotations[corev1.ServiceAccountUIDKey]
	if err != nil || uid != "" && uid != string(account.UID) {
		return c.remove(ctx, secret)
	}
	filled, err := c.filled(secret, account)
	if err != nil || filled == nil {
		return err
	}
	if _, err := c.client.CoreV1().Secrets(name.Namespace).Update(ctx, filled, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("fill Secret %s: %w", name, err)
	}
	return nil
}

// filled is the Secret with all that it lacks; nil if it lacks nothing.
func (c *Controller) filled(secret *corev1.Secret, account *corev1.ServiceAccount) (*corev1.Secret, error) {
	wanted := map[string][]byte{corev1.ServiceAccountNamespaceKey: []byte(secret.Namespace)}
	if len(c.ca) > 0 {
		wanted[corev1.ServiceAccountRootCAKey] = c.ca
	}
	if held := secret.Data[corev1.ServiceAccountTokenKey]; len(held) == 0 || c.issuer.IsOutdated(string(held)) {
		token, err := c.issuer.SecretToken(account, secret.Name)
		if err != nil {
			return nil, err
		}
		wanted[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	lacks := secret.Annotations[corev1.ServiceAccountUIDKey] == ""
	for key, value := range wanted {
		lacks = lacks || !bytes.Equal(secret.Data[key], value)
	}
	if !lacks {
		return nil, nil
	}
	secret = secret.DeepCopy()
	secret.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, wanted)
	return secret, nil
}

func (c *Controller) remove(ctx context.Context, secret *corev1.Secret) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}}
	err := c.client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s/%s, whose ServiceAccount is gone: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// release takes a Secret that is gone from those that a ServiceAccount lists.
func (c *Controller) release(ctx context.Context, r reference) error {
	accounts := c.client.CoreV1().ServiceAccounts(r.namespace)
	account, err := accounts.Get(ctx, r.account, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get ServiceAccount %s/%s: %w", r.namespace, r.account, err)
	}
	kept := slices.DeleteFunc(slices.Clone(account.Secrets), func(s corev1.ObjectReference) bool { return s.Name == r.secret })
	if len(kept) == len(account.Secrets) {
		return nil
	}
	account.Secrets = kept
	if _, err := accounts.Update(ctx, account, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take Secret %s from ServiceAccount %s/%s: %w", r.secret, r.namespace, r.account, err)
	}
	return nil
}
