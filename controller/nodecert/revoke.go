package nodecert

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/fairway-net/fairway/internal/revocation"
)

// The time in a list is a logical one. It is a server's clock, and is moved on where
// that isn't enough: a revocation is never earlier than a certificate that was issued
// before it, and a certificate that is issued after it is always later. So it doesn't
// matter whose clock is right.

// LockOut makes all certificates of a machine invalid, and has its pending requests
// denied, from now on: whoever calls it needs no clock. The controller dates it.
func LockOut(ctx context.Context, client kubernetes.Interface, node string) error {
	err := change(ctx, client, node, func(revocation.Entry, bool) (revocation.Entry, bool) { return revocation.Entry{All: true}, true })
	if err == nil {
		err = denyPending(ctx, client, node)
	}
	if err != nil {
		return fmt.Errorf("revoke certificates of %s: %w", node, err)
	}
	return nil
}

// Revoke makes the certificates of a machine issued until a time invalid. If those
// until a later one are, it changes nothing.
func Revoke(ctx context.Context, client kubernetes.Interface, node string, until time.Time) error {
	return revoke(ctx, client, node, revocation.Entry{Until: until})
}

func revoke(ctx context.Context, client kubernetes.Interface, node string, entry revocation.Entry) error {
	err := change(ctx, client, node, func(was revocation.Entry, listed bool) (revocation.Entry, bool) {
		return entry, !listed || was.All || entry.Until.After(was.Until)
	})
	if err != nil {
		return fmt.Errorf("revoke certificates of %s: %w", node, err)
	}
	return nil
}

// entryOf is what the list says of a machine.
func entryOf(ctx context.Context, client kubernetes.Interface, node string) (entry revocation.Entry, listed bool, err error) {
	list, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, revocation.ListOf(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return revocation.Entry{}, false, nil
	}
	if err != nil {
		return revocation.Entry{}, false, fmt.Errorf("read revoked certificates: %w", err)
	}
	text, listed := list.Data[node]
	if !listed {
		return revocation.Entry{}, false, nil
	}
	return revocation.Parse(text), true, nil
}

// change changes the entry of a machine, again where others write meanwhile.
func change(ctx context.Context, client kubernetes.Interface, node string, to func(was revocation.Entry, listed bool) (revocation.Entry, bool)) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	return retry.OnError(retry.DefaultBackoff, writtenMeanwhile, func() error {
		list, err := maps.Get(ctx, revocation.ListOf(node), metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		if missing {
			list = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: revocation.ListOf(node)}}
		}
		text, listed := list.Data[node]
		next, changed := to(revocation.Parse(text), listed)
		if !changed {
			return nil
		}
		if list.Data == nil {
			list.Data = map[string]string{}
		}
		if list.Data[node] = next.String(); missing {
			_, err = maps.Create(ctx, list, metav1.CreateOptions{})
		} else {
			_, err = maps.Update(ctx, list, metav1.UpdateOptions{})
		}
		return err
	})
}

func writtenMeanwhile(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// denyPending deletes a machine's own requests that aren't answered yet: they were made
// with a certificate that holds no more.
func denyPending(ctx context.Context, client kubernetes.Interface, node string) error {
	requests := client.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list requests: %w", err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.Username != nodePrefix+node || len(r.Status.Certificate) > 0 {
			continue
		}
		if err := requests.Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete request %s: %w", r.Name, err)
		}
	}
	return nil
}

// settle gives a machine's entry a date if it has none, and makes it at least as late
// as until and as the certificates that were issued already, but for that of the request
// named. It returns that date.
func (c *Controller) settle(ctx context.Context, node string, until time.Time, but string) (time.Time, error) {
	latest, err := c.latestIssued(ctx, node, but)
	if err != nil {
		return time.Time{}, err
	}
	if latest.After(until) {
		until = latest
	}
	if err := Revoke(ctx, c.cluster.Client, node, until); err != nil {
		return time.Time{}, err
	}
	entry, _, err := entryOf(ctx, c.cluster.Client, node)
	return entry.Until, err
}

// latestIssued is when the latest certificate of a machine was issued, of those whose
// requests are still there, but for one; others are older by more than any two clocks differ.
func (c *Controller) latestIssued(ctx context.Context, node, but string) (latest time.Time, err error) {
	list, err := c.cluster.Client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return latest, fmt.Errorf("list requests: %w", err)
	}
	for i := range list.Items {
		if at, name := issued(&list.Items[i]); name == node && at.After(latest) && list.Items[i].Name != but {
			latest = at
		}
	}
	return latest, nil
}

// issued is when the certificate of a request was issued, and to which machine.
func issued(r *certificatesv1.CertificateSigningRequest) (time.Time, string) {
	if len(r.Status.Certificate) == 0 {
		return time.Time{}, ""
	}
	_, user, reason := parse(r)
	block, _ := pem.Decode(r.Status.Certificate)
	if reason != "" || block == nil {
		return time.Time{}, ""
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, ""
	}
	return revocation.IssuedAt(certificate), user.Node
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
	return revoke(ctx, c.cluster.Client, g.node, revocation.Entry{Until: g.at, Gone: true})
}

// lookOver dates the entries of machines that were locked out, drops those of machines
// that are long gone, and has those looked at whose Nodes were deleted while no
// controller ran. Every machine that has joined is listed.
func (c *Controller) lookOver(ctx context.Context) error {
	list, err := c.cluster.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	known := map[string]bool{}
	for i := range list.Items {
		known[list.Items[i].Name] = true
	}
	var errs []error
	for _, name := range revocation.Names() {
		errs = append(errs, c.lookOverList(ctx, name, known))
	}
	return errors.Join(errs...)
}

func (c *Controller) lookOverList(ctx context.Context, name string, known map[string]bool) error {
	maps := c.cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	list, err := maps.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read revoked certificates: %w", err)
	}
	var errs []error
	divided, now, had := name != revocation.Undivided, c.now(), len(list.Data)
	for node, text := range list.Data {
		switch entry := revocation.Parse(text); {
		case entry.All && divided:
			_, err := c.settle(ctx, node, now, "")
			errs = append(errs, err)
		case entry.All:
		case now.Sub(entry.Until) > keepRevoked && (entry.Gone || !divided):
			delete(list.Data, node)
		case divided && !entry.Gone && !known[node] && now.Sub(entry.Until) > registerTime:
			c.gone.AddAfter(gone{node, now}, returnTime)
		}
	}
	if len(list.Data) == had {
		return errors.Join(errs...)
	}
	if _, err := maps.Update(ctx, list, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		errs = append(errs, fmt.Errorf("drop revoked certificates that have ended: %w", err))
	}
	return errors.Join(errs...)
}
