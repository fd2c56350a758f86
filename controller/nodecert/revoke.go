package nodecert

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Revoked names the ConfigMap in kube-system that lists machines whose
// certificates were revoked: by name, the time before which they were issued.
const Revoked = "fairway-revoked-machines"

// Revoke makes the certificates of a machine issued before a time invalid. If those
// until a later one are, it changes nothing.
func Revoke(ctx context.Context, client kubernetes.Interface, node string, before time.Time) error {
	err := retry.OnError(retry.DefaultBackoff, writtenMeanwhile, func() error { return revoke(ctx, client, node, before) })
	if err != nil {
		return fmt.Errorf("revoke certificates of %s: %w", node, err)
	}
	return nil
}

func writtenMeanwhile(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

func revoke(ctx context.Context, client kubernetes.Interface, node string, before time.Time) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	at := before.UTC().Format(time.RFC3339Nano)
	list, err := maps.Get(ctx, Revoked, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Revoked}, Data: map[string]string{node: at}}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if was, err := time.Parse(time.RFC3339Nano, list.Data[node]); err == nil && !was.Before(before) {
		return nil
	}
	if list.Data == nil {
		list.Data = map[string]string{}
	}
	list.Data[node] = at
	_, err = maps.Update(ctx, list, metav1.UpdateOptions{})
	return err
}

// gone is a machine whose Node was deleted.
type gone struct {
	node string
	at   time.Time
}

// revokeGone revokes the certificates of a machine whose Node is still gone. One that
// it has got since then, by joining again, is its right to make a new Node.
func (c *Controller) revokeGone(ctx context.Context, g gone) error {
	_, err := c.cluster.Client.CoreV1().Nodes().Get(ctx, g.node, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	return Revoke(ctx, c.cluster.Client, g.node, g.at)
}
