package identity

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// secretIssuer is who tokens in Secrets are from.
const secretIssuer = "kubernetes/serviceaccount"

// secretClaims are those of a token in a Secret of type
// kubernetes.io/service-account-token, as Kubernetes lays them out.
type secretClaims struct {
	jwt.RegisteredClaims
	Namespace  string    `json:"kubernetes.io/serviceaccount/namespace"`
	Secret     string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Account    string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// IssueForSecret returns a token of a ServiceAccount that holds for as long as the
// Secret holds it, without an end.
func (s *ServiceAccounts) IssueForSecret(account *corev1.ServiceAccount, secret string) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodES256, secretClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: secretIssuer, Subject: serviceaccount.MakeUsername(account.Namespace, account.Name)},
		Namespace:        account.Namespace, Secret: secret, Account: account.Name, AccountUID: account.UID,
	})
	token.Header["kid"] = s.keyID
	signed, err := token.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("sign token of Secret %s/%s: %w", account.Namespace, secret, err)
	}
	return signed, nil
}

// isOfSecret reports whether a token says that it is one of a Secret.
func isOfSecret(token string) bool {
	var c jwt.RegisteredClaims
	_, _, err := jwt.NewParser().ParseUnverified(token, &c)
	return err == nil && c.Issuer == secretIssuer
}

// authenticateOfSecret recognises the token that is in its Secret now. It is meant
// for this API only.
func (s *ServiceAccounts) authenticateOfSecret(ctx context.Context, token string, wanted authenticator.Audiences) (*authenticator.Response, bool, error) {
	var c secretClaims
	_, err := jwt.ParseWithClaims(token, &c, s.keyOf,
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(secretIssuer), jwt.WithTimeFunc(s.now))
	if err != nil {
		return nil, false, fmt.Errorf("invalid bearer token: %w", err)
	}
	audiences := authenticator.Audiences{Issuer}.Intersect(wanted)
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string{Issuer}, wanted)
	}
	if c.Account == "" || c.AccountUID == "" || c.Subject != serviceaccount.MakeUsername(c.Namespace, c.Account) {
		return nil, false, errors.New("invalid bearer token: it names no ServiceAccount")
	}
	obj, err := s.objects.Get(ctx, "secrets", c.Namespace, c.Secret)
	if err != nil {
		return nil, false, fmt.Errorf("find the Secret that the token is in: %w", err)
	}
	secret, ok := obj.(*corev1.Secret)
	if !ok || secret.Type != corev1.SecretTypeServiceAccountToken || secret.DeletionTimestamp != nil ||
		subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) == 0 {
		return nil, false, fmt.Errorf("Secret %s/%s doesn't hold this token any more", c.Namespace, c.Secret) //nolint:staticcheck // a kind
	}
	if err := s.stillThere(ctx, "serviceaccounts", c.Namespace, &ref{c.Account, c.AccountUID}); err != nil {
		return nil, false, err
	}
	info := serviceaccount.ServiceAccountInfo{Name: c.Account, Namespace: c.Namespace, UID: string(c.AccountUID)}
	response := &authenticator.Response{User: info.UserInfo(), Audiences: audiences}
	s.reportOutdated(token, response)
	return response, true, nil
}
