package join

import (
	"context"
	"crypto"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"github.com/fairway-net/fairway/internal/machineuser"
)

const (
	// decisionTimeout bounds the wait for the server's controllers to decide.
	decisionTimeout = 30 * time.Second
	decisionPeriod  = 100 * time.Millisecond
)

// Options say which machine joins which cluster.
type Options struct {
	Server string // https://ADDRESS:PORT
	Token  string
	Node   string // the name that the machine's Node shall have
	Dir    string // where the certificate is kept
	// Version is that of the API which this program speaks, such as v1.37.2.
	Version string
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// Join makes the machine a member of the cluster: afterwards its directory
// holds a kubeconfig with a certificate for system:node:NODE. A machine that is
// a member already stays one, unless its certificate has ended or was revoked. Errors are one line and say what to do.
func Join(ctx context.Context, o Options) error {
	server, err := parseServer(o.Server)
	if err != nil {
		return err
	}
	token, err := ParseToken(o.Token)
	if err != nil {
		return err
	}
	if problem := NameProblem(o.Node); problem != "" {
		return fmt.Errorf("node name %q: %s; choose one with --node-name", o.Node, problem)
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil { // the kubeconfig names files in it
		return fmt.Errorf("find the directory of this machine: %w", err)
	}
	member, err := Member(o.Dir)
	switch {
	case err == nil && member.caHash == token.CAHash && member.Node == o.Node:
		if isAccepted(ctx, o.Dir) {
			return nil
		}
	case err == nil && member.caHash == token.CAHash:
		return fmt.Errorf("this machine has joined as %s: `fairway leave` first", member.Node)
	case err == nil:
		return fmt.Errorf("%s belongs to another cluster (%s): `fairway leave` first, or give another --data-dir", o.Dir, member.Server)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	known, err := trust(ctx, server, token.CAHash)
	if err != nil {
		return err
	}
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	if err := checkClock(now(), known.now); err != nil {
		return err
	}
	if err := checkVersion(o.Version, known.version); err != nil {
		return err
	}
	return obtain(ctx, o, token, known.ca)
}

// obtain gets the certificate and writes it down.
func obtain(ctx context.Context, o Options, token Token, ca []byte) error {
	certPEM, keyPEM, err := request(ctx, o.Server, token, ca, o.Node)
	if err != nil {
		return fmt.Errorf("join as %s: %w", o.Node, err)
	}
	store, err := openStore(o.Dir)
	if err != nil {
		return err
	}
	if _, err := store.Update(certPEM, keyPEM); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return writeKubeconfig(o.Dir, o.Server, o.Node, ca, store.CurrentPath())
}

func subject(user machineuser.User) *pkix.Name {
	return &pkix.Name{CommonName: user.Name(), Organization: []string{user.Group()}}
}

// request asks for a certificate with a join token.
func request(ctx context.Context, server string, token Token, ca []byte, node string) (certPEM, keyPEM []byte, err error) {
	said := &warnings{}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server, BearerToken: token.Bearer(), TLSClientConfig: rest.TLSClientConfig{CAData: ca}, WarningHandler: said, UserAgent: "fairway",
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make API client: %w", err)
	}
	certPEM, keyPEM, err = certificateFor(ctx, client, machineuser.User{Node: node}, nil)
	if apierrors.IsUnauthorized(err) {
		err = said.or(errors.New("the server doesn't accept the token; make a new one with `fairway token create`"))
	}
	return certPEM, keyPEM, err
}

// GatewayCertificate asks, as a machine that has joined, for the certificate of the
// processes that serve Gateways there.
func GatewayCertificate(ctx context.Context, client kubernetes.Interface, node string, life time.Duration) (certPEM, keyPEM []byte, err error) {
	certPEM, keyPEM, err = certificateFor(ctx, client, machineuser.User{Node: node, ForGateway: true}, &life)
	if err != nil {
		return nil, nil, fmt.Errorf("get the credential of the processes of Gateways: %w", err)
	}
	return certPEM, keyPEM, nil
}

// certificateFor makes a key, and has the server sign a certificate for it.
func certificateFor(ctx context.Context, client kubernetes.Interface, user machineuser.User, life *time.Duration) (certPEM, keyPEM []byte, err error) {
	if keyPEM, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("parse key: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("parse key: %T cannot sign", parsed)
	}
	data, err := cert.MakeCSR(key, subject(user), nil, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request: %w", err)
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, data, "", certificatesv1.KubeAPIServerClientKubeletSignerName, life, usages, key)
	if err != nil {
		return nil, nil, err
	}
	certPEM, err = awaitSignature(ctx, client, name, uid)
	return certPEM, keyPEM, err
}

// awaitSignature waits until a request is decided.
func awaitSignature(ctx context.Context, client kubernetes.Interface, name string, uid types.UID) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	for {
		request, err := client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err == nil && request.UID == uid {
			if err := refusal(request); err != nil {
				return nil, err
			}
			if len(request.Status.Certificate) > 0 {
				return request.Status.Certificate, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("the server didn't sign the request %s: are its controllers running?", name), err)
		case <-time.After(decisionPeriod):
		}
	}
}

// refusal is the reason for which a certificate is refused.
func refusal(request *certificatesv1.CertificateSigningRequest) error {
	for _, c := range request.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed) {
			return errors.New(c.Message)
		}
	}
	return nil
}

// warnings keeps what a server adds to its answers: the reason for which it
// doesn't accept a token.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) or(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.texts) == 0 {
		return err
	}
	return fmt.Errorf("%s; make a new one with `fairway token create` on a server", strings.Join(w.texts, "; "))
}
