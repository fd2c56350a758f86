package addresses

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/fairway-net/fairway/announce"
)

const (
	// keyCheckInterval is how often the controller checks the key. It makes a deleted Secret anew.
	keyCheckInterval = 5 * time.Second
	// keepFormerFor is how long the Secret keeps the former key after a rotation: until all
	// agents have read the new one.
	keepFormerFor = 25 * time.Second
)

func newKey() ([]byte, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

// makeKey creates the Secret with the key that nodes sign their adverts with, unless it
// exists. By adverts, nodes tell each other which addresses they announce.
func (c *Controller) makeKey(ctx context.Context) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: announce.KeySecret, Namespace: c.options.Namespace},
		Data:       map[string][]byte{announce.KeyField: key},
	}
	_, err = c.cluster.Client.CoreV1().Secrets(c.options.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Secret %s/%s: %w", c.options.Namespace, announce.KeySecret, err)
	}
	return nil
}

// RotateKey replaces the key that nodes sign their adverts with. If the former key is kept,
// adverts signed with it are accepted until the controller deletes it. Otherwise agents
// refuse them soon after they have read the new key.
func RotateKey(ctx context.Context, client kubernetes.Interface, namespace string, keepFormer bool) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	return changeKeys(ctx, client, namespace, func(data map[string][]byte) {
		delete(data, announce.PreviousKeyField)
		if keepFormer {
			data[announce.PreviousKeyField] = data[announce.KeyField]
		}
		data[announce.KeyField] = key
	})
}

func changeKeys(ctx context.Context, client kubernetes.Interface, namespace string, change func(data map[string][]byte)) error {
	secrets := client.CoreV1().Secrets(namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret, err := secrets.Get(ctx, announce.KeySecret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		change(secret.Data)
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("replace the key in Secret %s/%s: %w", namespace, announce.KeySecret, err)
	}
	return nil
}

// rotation is the one that goes on: the former key, and since when the Secret keeps it.
type rotation struct {
	former string // "" if none goes on
	since  time.Time
}

// keepKey works until ctx is done.
func (c *Controller) keepKey(ctx context.Context) {
	var k rotation
	said := ""
	ticker := time.NewTicker(keyCheckInterval)
	defer ticker.Stop()
	for {
		err := c.lookAtKey(ctx, &k, time.Now())
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			c.log.Warn("the key of adverts could not be checked; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-c.keyDue:
		}
	}
}

func (c *Controller) lookAtKey(ctx context.Context, k *rotation, now time.Time) error {
	secret, err := c.cluster.Client.CoreV1().Secrets(c.options.Namespace).Get(ctx, announce.KeySecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && len(secret.Data[announce.KeyField]) == 0 {
		c.log.Warn("the key that signs adverts is gone; making another one", "secret", c.options.Namespace+"/"+announce.KeySecret)
		if err == nil {
			return RotateKey(ctx, c.cluster.Client, c.options.Namespace, false)
		}
		return c.makeKey(ctx)
	}
	if err != nil {
		return fmt.Errorf("get Secret %s/%s: %w", c.options.Namespace, announce.KeySecret, err)
	}
	if err := c.nameGone(ctx, secret); err != nil {
		return err
	}
	former := string(secret.Data[announce.PreviousKeyField])
	if former != k.former {
		k.former, k.since = former, now
	}
	switch {
	case former != "" && now.Sub(k.since) >= keepFormerFor:
		return changeKeys(ctx, c.cluster.Client, c.options.Namespace, func(data map[string][]byte) {
			if string(data[announce.PreviousKeyField]) == former {
				delete(data, announce.PreviousKeyField)
			}
		})
	case former == "" && c.nodesGone.Swap(false): // one after the other: a third key would be none of theirs
		c.log.Info("a node was deleted: adverts get another key, which it can't read", "secret", c.options.Namespace+"/"+announce.KeySecret)
		if err := RotateKey(ctx, c.cluster.Client, c.options.Namespace, true); err != nil {
			c.nodesGone.Store(true)
			return err
		}
	}
	return nil
}

// mostOut is how many nodes the Secret names that were deleted, the last ones.
const mostOut = 200

// nameGone has the Secret name the nodes that were deleted, and not those that are back: agents
// believe none of their adverts from then on, which a key that is replaced takes a minute for.
func (c *Controller) nameGone(ctx context.Context, secret *corev1.Secret) error {
	c.mu.Lock()
	gone := slices.Clone(c.gone)
	c.mu.Unlock()
	before := string(secret.Data[announce.OutField])
	var list []string
	for _, node := range append(strings.Fields(before), gone...) {
		if _, err := c.cluster.Nodes.Get(node); apierrors.IsNotFound(err) && !slices.Contains(list, node) {
			list = append(list, node)
		}
	}
	list = list[max(0, len(list)-mostOut):]
	if out := strings.Join(list, "\n"); out != before {
		err := changeKeys(ctx, c.cluster.Client, c.options.Namespace, func(data map[string][]byte) { data[announce.OutField] = []byte(out) })
		if err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.gone = c.gone[len(gone):]
	c.mu.Unlock()
	return nil
}
