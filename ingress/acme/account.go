package acme

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"

	"github.com/mholt/acmez/v3/acme"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// accounts are those at the authority, one for each namespace that has certificates: an
// authority may give an account another certificate without looking whether the host is
// still its own. Each one's key is kept in a Secret; who has it can have certificates revoked.
type accounts struct {
	mu sync.Mutex
	of map[string]*accountOf
}

// accountOf is the account of a namespace.
type accountOf struct {
	mu      sync.Mutex
	name    string // of the Secret
	current *acme.Account
	unknown bool // the authority doesn't know the one that is kept
}

// named is the account of a namespace.
func (a *accounts) named(namespace string) *accountOf {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]*accountOf{}
	}
	if a.of[namespace] == nil {
		a.of[namespace] = &accountOf{name: account + "-" + namespace}
	}
	return a.of[namespace]
}

// The entries of the account's Secret.
const (
	accountKey, accountBody, accountDirectory = "account.key", "account.json", "directory"
)

// get returns the account, and makes one if there is none yet at this authority.
func (a *accountOf) get(ctx context.Context, o Options, client *acme.Client) (acme.Account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != nil {
		return *a.current, nil
	}
	secrets := o.Core.CoreV1().Secrets(o.Namespace)
	s, err := secrets.Get(ctx, a.name, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return acme.Account{}, fmt.Errorf("read account for ACME: %w", err)
	}
	if !isNew && !a.unknown && string(s.Data[accountDirectory]) == o.Directory {
		if found, err := readAccount(s); err == nil {
			a.current = found
			return *found, nil
		}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return acme.Account{}, fmt.Errorf("make key of account: %w", err)
	}
	wanted := acme.Account{TermsOfServiceAgreed: true, PrivateKey: private}
	if o.Email != "" {
		wanted.Contact = []string{"mailto:" + o.Email}
	}
	made, err := client.NewAccount(ctx, wanted)
	if err != nil {
		return acme.Account{}, fmt.Errorf("make account at %s: %w", o.Directory, err)
	}
	made.PrivateKey = private
	body, err := json.Marshal(made)
	if err != nil {
		return acme.Account{}, fmt.Errorf("write account for ACME: %w", err)
	}
	key, err := encodeKey(private)
	if err != nil {
		return acme.Account{}, err
	}
	next := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: a.name, Labels: map[string]string{Label: "true"}},
		Data:       map[string][]byte{accountKey: key, accountBody: body, accountDirectory: []byte(o.Directory)},
	}
	if isNew {
		_, err = secrets.Create(ctx, next, metav1.CreateOptions{})
	} else {
		next.ResourceVersion = s.ResourceVersion
		_, err = secrets.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return acme.Account{}, fmt.Errorf("keep account for ACME: %w", err)
	}
	a.current, a.unknown = &made, false
	return made, nil
}

func readAccount(s *corev1.Secret) (*acme.Account, error) {
	block, _ := pem.Decode(s.Data[accountKey])
	if block == nil {
		return nil, errors.New("the account has no key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read key of account: %w", err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read key of account: it is a %T", key)
	}
	out := &acme.Account{}
	if err := json.Unmarshal(s.Data[accountBody], out); err != nil {
		return nil, fmt.Errorf("read account: %w", err)
	}
	out.PrivateKey = private
	return out, nil
}

// forget has the next certificate begin with a new account.
func (a *accountOf) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current, a.unknown = nil, true
}
