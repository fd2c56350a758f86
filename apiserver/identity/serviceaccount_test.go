package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// oneAccount is all that there is.
type oneAccount struct{ account *corev1.ServiceAccount }

func (o oneAccount) Get(context.Context, string, string, string) (runtime.Object, error) {
	return o.account, nil
}

func (o oneAccount) Cached(context.Context, string, string, string) (runtime.Object, error) {
	return o.account, nil
}

// TestTwoKeys: while the key is replaced, tokens of both are good, and those of the first
// one are made. What another key signed, or one that was forgotten, is nobody's.
func TestTwoKeys(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "1"}}
	var keys []*ecdsa.PrivateKey
	for range 2 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	with := func(keys ...*ecdsa.PrivateKey) *ServiceAccounts {
		s, err := NewServiceAccounts(keys, oneAccount{account})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	token := func(s *ServiceAccounts) string {
		seconds := int64(3600)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		if err := s.Issue(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	old, fresh := with(keys[0]), with(keys[1])
	for name, test := range map[string]struct {
		by, at *ServiceAccounts
		want   bool
	}{
		"old, both trusted":    {old, with(keys[1], keys[0]), true},
		"new, both trusted":    {fresh, with(keys[0], keys[1]), true},
		"the first signs":      {with(keys[1], keys[0]), fresh, true},
		"old, forgotten":       {old, fresh, false},
		"new, not yet trusted": {fresh, old, false},
	} {
		made := token(test.by)
		_, ok, err := test.at.AuthenticateToken(t.Context(), made)
		if ok != test.want || ok != (err == nil) {
			t.Errorf("%s: accepted %v, %v, want %v", name, ok, err, test.want)
		}
		if outdated := test.at.IsOutdated(made); outdated != (test.want && test.at.keyID != test.by.keyID) {
			t.Errorf("%s: outdated %v", name, outdated)
		}
	}
}
