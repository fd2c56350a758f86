// Package nodecert gives machines their certificates, and takes them away. It
// decides requests (certificates.k8s.io) for the signer
// kubernetes.io/kube-apiserver-client-kubelet: a join token gets a certificate
// for a name that no living machine has, and a machine one for its own name.
// A machine also gets one for the processes that serve Gateways there, if it may serve them.
// A machine whose Node is deleted, and that doesn't register again within a
// moment, loses its certificate too.
package nodecert

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
	"github.com/fairway-net/fairway/internal/revocation"
)

const (
	// returnTime is how long a machine whose Node was deleted has to register again.
	returnTime = 15 * time.Second
	// registerTime is how long a machine that has joined has to register its Node.
	registerTime = 10 * time.Minute
	// keepRevoked is how long a revocation is kept: longer than certificates last
	// (pki.LeafLife, of the few that aren't asked for by requests).
	keepRevoked = 366 * 24 * time.Hour
	// lookOverPeriod is how often the lists of revoked certificates are looked over.
	lookOverPeriod = time.Minute
)

// Signer issues client certificates.
type Signer interface {
	// Sign issues a certificate that says it was issued after a time.
	Sign(request *x509.CertificateRequest, life time.Duration, after time.Time) ([]byte, error)
}

// Controller decides and signs requests.
type Controller struct {
	cluster  *cluster.Cache
	signer   Signer
	mayServe func(node string) bool // Gateways
	requests *queue.Queue[string]
	gone     *queue.Queue[gone]
	log      *slog.Logger
	now      func() time.Time
}

// New returns the controller, its handlers added to c. Without a signer it
// leaves requests alone. mayServe says which machines may serve Gateways, and so read
// their keys; none if it is nil.
func New(c *cluster.Cache, signer Signer, mayServe func(node string) bool, log *slog.Logger) (*Controller, error) {
	if mayServe == nil {
		mayServe = func(string) bool { return false }
	}
	controller := &Controller{cluster: c, signer: signer, mayServe: mayServe, log: log, now: time.Now}
	controller.requests = queue.New(log, controller.sync)
	controller.gone = queue.New(log, controller.revokeGone)
	err := c.OnNode(func(old, new *corev1.Node) {
		if new == nil {
			controller.gone.AddAfter(gone{old.Name, controller.now()}, returnTime)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) {
	if c.signer == nil {
		return
	}
	factory := informers.NewSharedInformerFactory(c.cluster.Client, 0)
	informer := factory.Certificates().V1().CertificateSigningRequests().Informer()
	add := func(obj any) {
		if request, ok := obj.(*certificatesv1.CertificateSigningRequest); ok {
			c.requests.Add(request.Name)
		}
	}
	// The informer is new: a handler can always be added.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }})
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	var group sync.WaitGroup
	group.Go(func() { c.gone.Run(ctx, 1) })
	group.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := c.lookOver(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("revoked certificates could not be checked; trying again", "error", err)
			}
		}, lookOverPeriod)
	})
	c.requests.Run(ctx, 1) // one, so that no two get the same name
	group.Wait()
}

func (c *Controller) sync(ctx context.Context, name string) error {
	requests := c.cluster.Client.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get request %s: %w", name, err)
	}
	if request.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || len(request.Status.Certificate) > 0 {
		return nil
	}
	approved, decided := decision(request)
	if !decided {
		if approved, err = c.decide(ctx, request); err != nil {
			return err
		}
	}
	if !approved {
		return nil
	}
	return c.sign(ctx, request)
}

func decision(request *certificatesv1.CertificateSigningRequest) (approved, decided bool) {
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved:
			approved, decided = true, true
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return false, true
		}
	}
	return approved, decided
}

// decide approves or denies a request, and writes down which and why.
func (c *Controller) decide(ctx context.Context, request *certificatesv1.CertificateSigningRequest) (approved bool, err error) {
	reason, err := c.objection(ctx, request)
	if err != nil {
		return false, err
	}
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: "asked with a join token, or by the machine itself",
	}
	if reason != "" {
		condition.Type, condition.Reason, condition.Message = certificatesv1.CertificateDenied, "Refused", reason
	}
	request.Status.Conditions = append(request.Status.Conditions, condition)
	updated, err := c.cluster.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	if err != nil {
		return false, fmt.Errorf("decide request %s: %w", request.Name, err)
	}
	*request = *updated
	return reason == "", nil
}

func (c *Controller) sign(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	wanted, user, reason := parse(request)
	if reason != "" { // approved by a person, for what no agent has
		return c.fail(ctx, request, reason)
	}
	node := user.Node
	if isBootstrapper(request) {
		// Whatever machine had this name before is another. The date is the request's, and what it
		// was answered with is left out: a leader that has lost the lead, or that didn't hear that
		// it had answered, comes here again and must not revoke what the machine has by now.
		if _, err := c.settle(ctx, node, request.CreationTimestamp.Time, request.Name); err != nil {
			return err
		}
	}
	before, _, err := entryOf(ctx, c.cluster.Client, node)
	if err != nil {
		return err
	}
	if !isBootstrapper(request) && madeBefore(request, before) {
		return c.fail(ctx, request, lockedOut)
	}
	var life time.Duration
	if s := request.Spec.ExpirationSeconds; s != nil {
		life = time.Duration(*s) * time.Second
	}
	certificate, err := c.signer.Sign(wanted, life, before.Until)
	if err != nil {
		return err
	}
	// What was revoked meanwhile is earlier than this certificate says it is. What is
	// revoked from here on deletes the request, or finds the certificate in it.
	if after, _, err := entryOf(ctx, c.cluster.Client, node); err != nil || after != before {
		if err == nil {
			err = fmt.Errorf("sign request %s: certificates of %s were revoked meanwhile", request.Name, node)
		}
		return err
	}
	request.Status.Certificate = certificate
	return c.update(ctx, request)
}

// lockedOut is why a machine doesn't get another certificate.
const lockedOut = "the machine's certificates were revoked after this was asked for with one of them"

// madeBefore reports whether a request was made with a certificate that is revoked. The
// server notes in the request when the certificate was issued by which it was made; a
// request without that note is judged by its own date.
func madeBefore(request *certificatesv1.CertificateSigningRequest, entry revocation.Entry) bool {
	noted := request.Spec.Extra[revocation.IssuedKey]
	if len(noted) != 1 {
		return entry.Revokes(request.CreationTimestamp.Time)
	}
	issued, err := time.Parse(time.RFC3339Nano, noted[0])
	return err != nil || entry.Revokes(issued)
}

func (c *Controller) fail(ctx context.Context, request *certificatesv1.CertificateSigningRequest, reason string) error {
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: reason,
	})
	return c.update(ctx, request)
}

func (c *Controller) update(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	_, err := c.cluster.Client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, request, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("answer request %s: %w", request.Name, err)
	}
	return nil
}
