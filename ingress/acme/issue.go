package acme

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ensure has a Secret hold a certificate that is good for a while, and says when
// to look again. The last good certificate stays until there is another one.
func (i *Issuer) ensure(ctx context.Context, c Certificate) (obtained bool, again time.Duration, err error) {
	secrets := i.options.Core.CoreV1().Secrets(c.Secret.Namespace)
	s, err := secrets.Get(ctx, c.Secret.Name, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	switch {
	case isNew:
		s = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Secret.Namespace, Name: c.Secret.Name}, Type: corev1.SecretTypeTLS}
	case err != nil:
		return false, 0, fmt.Errorf("read Secret %s: %w", c.Secret, err)
	case s.Labels[Label] == "":
		return false, 0, fmt.Errorf("Secret %s is somebody else's: it has no label %s, so no certificate is written into it", c.Secret, Label) //nolint:staticcheck // a kind's name
	}
	if left := good(s, c.Hosts, time.Now()); left > 0 {
		return false, left, nil
	}
	chain, key, err := i.obtain(ctx, c)
	if err != nil {
		return false, 0, err
	}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[Label] = "true"
	s.Data = map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key}
	if isNew {
		_, err = secrets.Create(ctx, s, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	}
	if err != nil {
		return false, 0, fmt.Errorf("keep certificate in Secret %s: %w", c.Secret, err)
	}
	return true, max(good(s, c.Hosts, time.Now()), time.Second), nil
}

// good is how long a Secret's certificate can be left alone: until a third of its
// life is left; 0 if it isn't good for the hosts.
func good(s *corev1.Secret, hosts []string, now time.Time) time.Duration {
	pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return 0
	}
	for _, h := range hosts {
		if pair.Leaf.VerifyHostname(h) != nil {
			return 0
		}
	}
	due := pair.Leaf.NotAfter.Add(-pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore) / 3)
	return max(due.Sub(now), 0)
}

// obtain orders a certificate, shows that the hosts are ours, and fetches it.
func (i *Issuer) obtain(ctx context.Context, c Certificate) (chain, key []byte, err error) {
	hosts, shows := c.Hosts, &solver{i, c.At}
	client := &acmez.Client{
		Client: &acme.Client{
			Directory: i.options.Directory, UserAgent: "fairway", Logger: i.options.Log,
			HTTPClient: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: i.options.Roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			}},
		},
		ChallengeSolvers: map[string]acmez.Solver{acme.ChallengeTypeHTTP01: shows, acme.ChallengeTypeTLSALPN01: shows},
	}
	if i.options.Types != nil {
		maps.DeleteFunc(client.ChallengeSolvers, func(name string, _ acmez.Solver) bool { return !slices.Contains(i.options.Types, name) })
	}
	defer client.HTTPClient.CloseIdleConnections()
	account := i.accounts.named(c.Secret.Namespace)
	who, err := account.get(ctx, i.options, client.Client)
	if err != nil {
		return nil, nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	list, err := client.ObtainCertificateForSANs(ctx, who, private, hosts)
	if err != nil {
		var problem acme.Problem
		if errors.As(err, &problem) && problem.Type == acme.ProblemTypeAccountDoesNotExist {
			account.forget() // the authority has forgotten it, too
		}
		return nil, nil, fmt.Errorf("obtain certificate for %v of %s: %w", hosts, i.options.Directory, err)
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("obtain certificate for %v of %s: there is none", hosts, i.options.Directory)
	}
	key, err = encodeKey(private)
	return list[0].ChainPEM, key, err
}

func encodeKey(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
