package acme

import (
	"context"
	"crypto/ecdsa"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// What the names of entries of the ConfigMap begin with; a token follows, or a
// host.
const (
	HTTP01    = "http-01."
	TLSALPN01 = "tls-alpn-01."
	// At says of a token or a host at which Gateways alone it is answered.
	At = "at."
)

// solver shows that hosts are those of the Gateways to which each leads.
type solver struct {
	*Issuer
	at map[string][]types.NamespacedName
}

// Present publishes what the authority is going to look for. It is for acmez.
func (s *solver) Present(ctx context.Context, c acme.Challenge) error {
	key, answer, err := entry(c)
	if err != nil {
		return err
	}
	var gateways []string
	for _, g := range s.at[c.Identifier.Value] {
		gateways = append(gateways, g.String())
	}
	if len(gateways) == 0 { // an answer that names none would be any Gateway's
		return fmt.Errorf("host %q leads to no Gateway", c.Identifier.Value)
	}
	return s.edit(ctx, func(data map[string]string) {
		data[key], data[At+tokenOrHost(c)] = answer, strings.Join(gateways, " ")
	})
}

// tokenOrHost is what a challenge is found by.
func tokenOrHost(c acme.Challenge) string {
	if c.Type == acme.ChallengeTypeTLSALPN01 {
		return c.Identifier.Value
	}
	return c.Token
}

// Wait gives engines the time to learn of it. It is for acmez.
func (s *solver) Wait(ctx context.Context, _ acme.Challenge) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.options.Settle):
		return nil
	}
}

// CleanUp takes it back. It is for acmez.
func (s *solver) CleanUp(ctx context.Context, c acme.Challenge) error {
	kind := map[string]string{acme.ChallengeTypeHTTP01: HTTP01, acme.ChallengeTypeTLSALPN01: TLSALPN01}[c.Type]
	return s.edit(context.WithoutCancel(ctx), func(data map[string]string) {
		delete(data, kind+tokenOrHost(c))
		delete(data, At+tokenOrHost(c))
	})
}

// entry is what engines answer: a text over HTTP, or a certificate by TLS.
func entry(c acme.Challenge) (key, answer string, err error) {
	if c.Type == acme.ChallengeTypeHTTP01 {
		return HTTP01 + c.Token, c.KeyAuthorization, nil
	}
	pair, err := acmez.TLSALPN01ChallengeCert(c)
	if err != nil {
		return "", "", fmt.Errorf("make certificate for challenge: %w", err)
	}
	private, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return "", "", errors.New("make certificate for challenge: its key is not for ECDSA")
	}
	text, err := encodeKey(private)
	if err != nil {
		return "", "", err
	}
	for _, der := range pair.Certificate {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return TLSALPN01 + c.Identifier.Value, string(text), nil
}

// edit changes the ConfigMap.
func (i *Issuer) edit(ctx context.Context, change func(map[string]string)) error {
	maps := i.options.Core.CoreV1().ConfigMaps(i.options.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		m, err := maps.Get(ctx, Challenges, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.options.Namespace, Name: Challenges, Labels: map[string]string{Label: "true"}}, Data: map[string]string{}}
			change(m.Data)
			_, err = maps.Create(ctx, m, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // another order was first
				return apierrors.NewConflict(corev1.Resource("configmaps"), Challenges, err)
			}
			return err
		}
		if err != nil {
			return err
		}
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		change(m.Data)
		_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("publish challenge: %w", err)
	}
	return nil
}
