// Package expired deletes expired objects that nobody else deletes: join tokens
// after their time, and certificate requests that were answered, or that nobody
// answers.
package expired

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	lookPeriod = time.Minute
	// tokenTime is how long a token is kept that has expired: whoever comes with
	// it is told so, and not that nobody knows it.
	tokenTime = 24 * time.Hour
	// answeredTime and pendingTime are how long requests for certificates are kept,
	// as kube-controller-manager has it.
	answeredTime = time.Hour
	pendingTime  = 24 * time.Hour
)

// Controller looks now and then.
type Controller struct {
	client kubernetes.Interface
	log    *slog.Logger
	now    func() time.Time
}

// New returns the controller.
func New(client kubernetes.Interface, log *slog.Logger) *Controller {
	return &Controller{client: client, log: log, now: time.Now}
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		if err := errors.Join(c.tokens(ctx), c.requests(ctx)); err != nil && ctx.Err() == nil {
			c.log.Warn("expired objects could not be deleted; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// tokens deletes join tokens. One whose time can't be read never held (see
// identity.JoinTokens); it is left to whoever wrote it.
func (c *Controller) tokens(ctx context.Context) error {
	secrets := c.client.CoreV1().Secrets(metav1.NamespaceSystem)
	list, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken), ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list join tokens: %w", err)
	}
	var errs []error
	for i := range list.Items {
		token := &list.Items[i]
		expired, err := time.Parse(time.RFC3339, string(token.Data["expiration"]))
		if err != nil || token.Type != corev1.SecretTypeBootstrapToken || c.now().Sub(expired) < tokenTime {
			continue
		}
		if err := ended(secrets.Delete(ctx, token.Name, unchanged(token))); err != nil {
			errs = append(errs, fmt.Errorf("delete join token %s: %w", token.Name, err))
		}
	}
	return errors.Join(errs...)
}

// requests deletes requests for certificates.
func (c *Controller) requests(ctx context.Context) error {
	requests := c.client.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list requests for certificates: %w", err)
	}
	var errs []error
	for i := range list.Items {
		request := &list.Items[i]
		if age, most := c.age(request); age < most {
			continue
		}
		if err := ended(requests.Delete(ctx, request.Name, unchanged(request))); err != nil {
			errs = append(errs, fmt.Errorf("delete request %s: %w", request.Name, err))
		}
	}
	return errors.Join(errs...)
}

// age is how old a request is, or its answer, and how old it may become.
func (c *Controller) age(request *certificatesv1.CertificateSigningRequest) (age, most time.Duration) {
	since, most := request.CreationTimestamp.Time, pendingTime
	for _, condition := range request.Status.Conditions {
		since, most = condition.LastUpdateTime.Time, answeredTime
	}
	return c.now().Sub(since), most
}

// unchanged has an object deleted only as it was seen.
func unchanged(o metav1.Object) metav1.DeleteOptions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}

// ended is nil if a deletion has succeeded, or will with the next look.
func ended(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
