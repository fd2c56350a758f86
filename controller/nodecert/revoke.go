package nodecert

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Revoked names the ConfigMap in kube-system that lists machines whose
// certificates were revoked: by name, the time before which they were issued.
const Revoked = "fairway-revoked-machines"

// Revoke makes the certificates of a machine issued before now invalid.
func Revoke(ctx context.Context, client kubernetes.Interface, node string, now time.Time) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	at := now.UTC().Format(time.RFC3339Nano)
	list, err := maps.Get(ctx, Revoked, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Revoked}, Data: map[string]string{node: at}}, metav1.CreateOptions{})
	} else if err == nil {
		if list.Data == nil {
			list.Data = map[string]string{}
		}
		list.Data[node] = at
		_, err = maps.Update(ctx, list, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("revoke certificates of %s: %w", node, err)
	}
	return nil
}

func (c *Controller) revoke(ctx context.Context, node string) error {
	return Revoke(ctx, c.cluster.Client, node, c.now())
}

// revokeGone revokes the certificates of a machine whose Node is still gone.
func (c *Controller) revokeGone(ctx context.Context, name string) error {
	_, err := c.cluster.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	return c.revoke(ctx, name)
}
