package nodecert

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/internal/machineuser"
	"github.com/fairway-net/fairway/kube/join"
)

const (
	nodePrefix    = machineuser.NodePrefix
	nodesGroup    = machineuser.NodesGroup
	bootstrappers = "system:bootstrappers"
	// joiningTime is how long a machine has from its certificate to its Node.
	joiningTime = time.Minute
)

// allowedUsages are those of a machine's client certificate.
var allowedUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth,
}

// parse reads the certificate asked for, and says what is wrong with it if it
// isn't one of a machine: of its agent, or of the processes of Gateways there.
func parse(request *certificatesv1.CertificateSigningRequest) (wanted *x509.CertificateRequest, user machineuser.User, reason string) {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return nil, user, "the request is not PEM encoded"
	}
	wanted, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, user, fmt.Sprintf("the request can't be read: %v", err)
	}
	if err := wanted.CheckSignature(); err != nil {
		return nil, user, fmt.Sprintf("the request isn't signed with its own key: %v", err)
	}
	user, found := machineuser.Parse(wanted.Subject.CommonName)
	if !found || !slices.Equal(wanted.Subject.Organization, []string{user.Group()}) {
		return nil, user, fmt.Sprintf("the subject must be CN=%sNAME, O=%s, or CN=%sNAME, O=%s",
			nodePrefix, nodesGroup, machineuser.GatewayPrefix, machineuser.GatewaysGroup)
	}
	if problem := join.NameProblem(user.Node); problem != "" {
		return nil, user, fmt.Sprintf("node name %q: %s", user.Node, problem)
	}
	if len(wanted.DNSNames)+len(wanted.IPAddresses)+len(wanted.EmailAddresses)+len(wanted.URIs) > 0 {
		return nil, user, "a client certificate has no alternative names"
	}
	for _, usage := range request.Spec.Usages {
		if !slices.Contains(allowedUsages, usage) {
			return nil, user, fmt.Sprintf("usage %q is not one of a machine's client certificate", usage)
		}
	}
	if !slices.Contains(request.Spec.Usages, certificatesv1.UsageClientAuth) {
		return nil, user, fmt.Sprintf("usage %q is missing", certificatesv1.UsageClientAuth)
	}
	return wanted, user, ""
}

func isBootstrapper(request *certificatesv1.CertificateSigningRequest) bool {
	return slices.Contains(request.Spec.Groups, bootstrappers)
}

// objection is why a request is denied; "" if it isn't.
func (c *Controller) objection(ctx context.Context, request *certificatesv1.CertificateSigningRequest) (string, error) {
	wanted, user, reason := parse(request)
	node := user.Node
	switch {
	case reason != "":
		return reason, nil
	case user.ForGateway && !c.mayServe(node):
		return fmt.Sprintf("machine %s may not serve Gateways: the server's --gateway-machines doesn't name it", node), nil
	case request.Spec.Username == nodePrefix+node && slices.Contains(request.Spec.Groups, nodesGroup):
		entry, listed, err := entryOf(ctx, c.cluster.Client, node)
		if listed && madeBefore(request, entry) {
			return lockedOut, err
		}
		return "", err
	case user.ForGateway, !isBootstrapper(request):
		return fmt.Sprintf("user %q may ask for no certificate of node %s: only the machine itself and join tokens may", request.Spec.Username, node), nil
	}
	alive, err := c.alive(ctx, node)
	if err != nil {
		return "", err
	}
	if alive {
		return fmt.Sprintf("a machine named %s is a member already, and alive: choose another name with --node-name, or remove the other with `fairway leave` there", node), nil
	}
	return c.joining(ctx, request, wanted, node)
}

// alive reports whether a machine of that name is a member and heard of.
func (c *Controller) alive(ctx context.Context, name string) (bool, error) {
	node, err := c.cluster.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get Node %s: %w", name, err)
	}
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	}), nil
}

// joining objects to a second machine of a name while the first has its
// certificate and not its Node yet.
func (c *Controller) joining(ctx context.Context, request *certificatesv1.CertificateSigningRequest, wanted *x509.CertificateRequest, node string) (string, error) {
	list, err := c.cluster.Client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list requests: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		approved, _ := decision(other)
		if other.Name == request.Name || !approved || !isBootstrapper(other) || c.now().Sub(other.CreationTimestamp.Time) > joiningTime {
			continue
		}
		theirs, of, reason := parse(other)
		if reason == "" && of.Node == node && !slices.Equal(theirs.RawSubjectPublicKeyInfo, wanted.RawSubjectPublicKeyInfo) {
			return fmt.Sprintf("another machine is joining as %s just now: choose another name with --node-name, or try again in a minute", node), nil
		}
	}
	return "", nil
}
