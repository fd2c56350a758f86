package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Issuer is who ServiceAccounts' tokens are from and, unless others are asked
// for, who they are meant for.
const Issuer = "https://kubernetes.default.svc.cluster.local"

// ServiceAccounts issues tokens for ServiceAccounts and recognises them. Every
// server of a cluster has the same key.
type ServiceAccounts struct {
	key     *ecdsa.PrivateKey
	keyID   string
	trusted map[string]*ecdsa.PublicKey // by their IDs
	objects Objects
	now     func() time.Time
	// Outdated is called with the user of a token that was signed with another key than the one
	// that signs now. It may be nil.
	Outdated func(user string)
}

// NewServiceAccounts returns an issuer that signs with the first of keys, and believes
// what any of them signed.
func NewServiceAccounts(keys []*ecdsa.PrivateKey, objects Objects) (*ServiceAccounts, error) {
	s := &ServiceAccounts{key: keys[0], trusted: map[string]*ecdsa.PublicKey{}, objects: objects, now: time.Now}
	for _, key := range keys {
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return nil, fmt.Errorf("encode key of ServiceAccounts: %w", err)
		}
		sum := sha256.Sum256(public)
		id := base64.RawURLEncoding.EncodeToString(sum[:])
		s.trusted[id] = &key.PublicKey
		if key == s.key {
			s.keyID = id
		}
	}
	return s, nil
}

// keyOf finds the key that a token says it was signed with.
func (s *ServiceAccounts) keyOf(token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	if key, ok := s.trusted[id]; ok {
		return key, nil
	}
	return nil, errors.New("it was signed with a key that isn't trusted any more, or never was")
}

// IsOutdated reports whether a token says that it was signed with a key that is trusted
// and doesn't sign any more.
func (s *ServiceAccounts) IsOutdated(token string) bool {
	unverified, _, err := jwt.NewParser().ParseUnverified(token, &jwt.RegisteredClaims{})
	if err != nil {
		return false
	}
	_, err = s.keyOf(unverified)
	return err == nil && unverified.Header["kid"] != s.keyID
}

// reportOutdated says who came with a token that the signing key didn't sign.
func (s *ServiceAccounts) reportOutdated(token string, response *authenticator.Response) {
	if len(s.trusted) > 1 && s.Outdated != nil && s.IsOutdated(token) {
		s.Outdated(response.User.GetName())
	}
}

// Issue answers a valid TokenRequest for a ServiceAccount.
func (s *ServiceAccounts) Issue(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error {
	spec := &request.Spec
	if len(spec.Audiences) == 0 {
		spec.Audiences = []string{Issuer}
	}
	now := s.now()
	expires := now.Add(time.Duration(*spec.ExpirationSeconds) * time.Second)
	k := kubernetesClaims{Namespace: account.Namespace, ServiceAccount: ref{account.Name, account.UID}}
	if spec.BoundObjectRef != nil {
		if err := s.bind(ctx, account.Namespace, spec.BoundObjectRef, &k); err != nil {
			return err
		}
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: Issuer, Subject: serviceaccount.MakeUsername(account.Namespace, account.Name), Audience: spec.Audiences,
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires), ID: uuid.NewString(),
		},
		Kubernetes: k,
	})
	token.Header["kid"] = s.keyID
	signed, err := token.SignedString(s.key)
	if err != nil {
		return fmt.Errorf("sign token of ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	request.Status = authenticationv1.TokenRequestStatus{Token: signed, ExpirationTimestamp: metav1.NewTime(expires)}
	return nil
}

// bind ties a token to an object: the token ends with it.
func (s *ServiceAccounts) bind(ctx context.Context, namespace string, to *authenticationv1.BoundObjectReference, k *kubernetesClaims) error {
	r := &ref{Name: to.Name}
	resource := ""
	switch {
	case to.APIVersion == "v1" && to.Kind == "Pod":
		resource, k.Pod = "pods", r
	case to.APIVersion == "v1" && to.Kind == "Secret":
		resource, k.Secret = "secrets", r
	case to.APIVersion == "v1" && to.Kind == "Node":
		resource, namespace, k.Node = "nodes", "", r
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount to %s %s: only Pod, Secret and Node of v1 can be bound to", to.APIVersion, to.Kind))
	}
	obj, err := s.objects.Get(ctx, resource, namespace, to.Name)
	if err != nil {
		return err
	}
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.ServiceAccountName != k.ServiceAccount.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", k.ServiceAccount.Name))
	}
	if r.UID, err = uid(obj); err != nil {
		return err
	}
	if to.UID != "" && to.UID != r.UID {
		return apierrors.NewConflict(corev1.Resource(resource), to.Name, fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", to.UID))
	}
	return nil
}

func uid(obj any) (types.UID, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", fmt.Errorf("read UID of %T: %w", obj, err)
	}
	return m.GetUID(), nil
}

// AuthenticateToken implements authenticator.Token. Tokens that aren't ours are
// left to others.
func (s *ServiceAccounts) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if strings.Count(token, ".") != 2 {
		return nil, false, nil
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = authenticator.Audiences{Issuer}
	}
	if isOfSecret(token) {
		return s.authenticateOfSecret(ctx, token, wanted)
	}
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, s.keyOf,
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(Issuer), jwt.WithExpirationRequired(), jwt.WithTimeFunc(s.now))
	if errors.Is(err, jwt.ErrTokenExpired) {
		return nil, false, errors.New("service account token has expired")
	}
	if err != nil {
		return nil, false, fmt.Errorf("invalid bearer token: %w", err)
	}
	audiences := authenticator.Audiences(c.Audience).Intersect(wanted)
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", c.Audience, wanted)
	}
	for resource, r := range c.Kubernetes.bound() {
		if err := s.stillThere(ctx, resource, c.Kubernetes.Namespace, r); err != nil {
			return nil, false, err
		}
	}
	response := &authenticator.Response{User: c.user(), Audiences: audiences}
	s.reportOutdated(token, response)
	return response, true, nil
}

func (s *ServiceAccounts) stillThere(ctx context.Context, resource, namespace string, r *ref) error {
	if r == nil {
		return nil
	}
	if resource == "nodes" {
		namespace = ""
	}
	obj, err := s.objects.Get(ctx, resource, namespace, r.Name)
	if err != nil {
		return fmt.Errorf("find what the token is bound to: %w", err)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("read %T: %w", obj, err)
	}
	if m.GetUID() != r.UID || m.GetDeletionTimestamp() != nil {
		return fmt.Errorf("the token is bound to %s %s, which was deleted", resource, r.Name)
	}
	return nil
}

func (c *claims) user() user.Info {
	k := &c.Kubernetes
	info := serviceaccount.ServiceAccountInfo{Name: k.ServiceAccount.Name, Namespace: k.Namespace, UID: string(k.ServiceAccount.UID), CredentialID: "JTI=" + c.ID}
	if k.Pod != nil {
		info.PodName, info.PodUID = k.Pod.Name, string(k.Pod.UID)
	}
	if k.Node != nil {
		info.NodeName, info.NodeUID = k.Node.Name, string(k.Node.UID)
	}
	return info.UserInfo()
}
