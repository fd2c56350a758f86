package apiserver

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"

	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/registry"
	"github.com/fairway-net/fairway/apiserver/rights"
)

// publicPaths may be read without credentials: they tell machines that watch
// over the server how it is.
var publicPaths = []string{"/healthz", "/livez", "/readyz", "/version"}

// access says who a request comes from and what they may do.
type access struct {
	// known recognises credentials; requests takes others for anonymous.
	known, requests authenticator.Request
	authorizer      authorizer.Authorizer
	roles           *rights.RBAC
	accounts        *identity.ServiceAccounts
	objects         *objects
}

func newAccess(dataDir, tokenFile string, servers authenticator.Token, clientCA dynamiccertificates.CAContentProvider, informers informers.SharedInformerFactory, passwords *rights.PeerSecrets, referred *rights.GatewayReferences, late *outdated) (*access, error) {
	a := &access{objects: &objects{unknown: rate.NewLimiter(unknownPerSecond, unknownBurst)}, roles: rights.NewRBAC(informers.Rbac().V1())}
	passwords.HoldsToken, referred.HoldsToken = a.holdsToken, a.holdsToken
	a.authorizer = rights.New(a.roles, passwords, referred)
	keys, err := pki.TokenKeys(filepath.Join(dataDir, "pki"))
	if err != nil {
		return nil, err
	}
	return a, a.authenticate(clientCA, tokenFile, servers, keys, late)
}

// authenticate accepts client certificates of our authority, tokens of
// ServiceAccounts, join tokens, server tokens and tokens listed in a file.
func (a *access) authenticate(clientCA dynamiccertificates.CAContentProvider, tokenFile string, servers authenticator.Token, keys []*ecdsa.PrivateKey, late *outdated) error {
	var err error
	if a.accounts, err = identity.NewServiceAccounts(keys, a.objects); err != nil {
		return err
	}
	a.accounts.Outdated = func(user string) { late.see(pki.AccountKeys, user) }
	certificates := newCertificates(clientCA.VerifyOptions)
	certificates.outdated = func(user string) { late.see(pki.ClientsName, user) }
	if certificates.signs, err = firstCertificate(clientCA.Name(), clientCA.CurrentCABundleContent()); err != nil {
		return err
	}
	tokens := []authenticator.Token{identity.NewJoinTokens(a.objects), servers, a.accounts}
	if tokenFile != "" {
		listed, err := tokenfile.NewCSV(tokenFile)
		if err != nil {
			return fmt.Errorf("read token file %s: %w", tokenFile, err)
		}
		tokens = append([]authenticator.Token{listed}, tokens...)
	}
	known := union.New(&identity.Revocable{Certificates: certificates, Objects: a.objects}, bearertoken.New(tokenunion.New(tokens...)))
	a.known = group.NewAuthenticatedGroupAdder(known)
	conditions := make([]apiserverapi.AnonymousAuthCondition, len(publicPaths))
	for i, path := range publicPaths {
		conditions[i].Path = path
	}
	a.requests = union.New(a.known, anonymous.NewAuthenticator(conditions))
	return nil
}

// kinds is what the kinds that ask and grant rights are served with.
func (a *access) kinds() registry.Access {
	escalation := &rights.Escalation{Roles: a.roles, Authorizer: a.authorizer}
	return registry.Access{
		Authenticator: a.known, Authorizer: a.authorizer, Rules: rights.Resolver{Roles: a.roles},
		Grants: escalation.Check, Issue: a.accounts.Issue,
	}
}

// service finds a Service.
func (a *access) service(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	obj, err := a.objects.Get(ctx, "services", namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Service), nil
}

// nodes lists all machines, as the server's memory has them.
func (a *access) nodes(ctx context.Context) ([]corev1.Node, error) {
	lister, ok := a.objects.resources["nodes"].(rest.Lister)
	if !ok {
		return nil, errors.New("no such resource: nodes")
	}
	list, err := lister.List(genericapirequest.WithNamespace(ctx, metav1.NamespaceNone), &metainternalversion.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return list.(*corev1.NodeList).Items, nil
}

// holdsToken reports whether a Secret holds a token: a ServiceAccount's, or one by which
// machines join.
func (a *access) holdsToken(ctx context.Context, namespace, name string) (bool, error) {
	obj, err := a.objects.Get(ctx, "secrets", namespace, name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	kind := obj.(*corev1.Secret).Type
	return kind == corev1.SecretTypeServiceAccountToken || kind == corev1.SecretTypeBootstrapToken, nil
}

// objects reads objects of the core group.
type objects struct {
	resources registry.Resources
	// unknown bounds how often the store is read for what memory doesn't hold: whoever has
	// no credential may make up names.
	unknown *rate.Limiter
}

// Reads of the store for what nobody knows: new objects that memory learns of a moment
// later are few.
const (
	unknownPerSecond = 20
	unknownBurst     = 200
)

// cacheDelay is how long a request for an unknown object waits for memory to learn of it,
// while the store has been read too often.
const cacheDelay = 250 * time.Millisecond

// Get implements identity.Objects.
func (o *objects) Get(ctx context.Context, resource, namespace, name string) (runtime.Object, error) {
	obj, err := o.Cached(ctx, resource, namespace, name)
	if !apierrors.IsNotFound(err) {
		return obj, err
	}
	if o.unknown.Allow() {
		return o.get(ctx, resource, namespace, name, "")
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(cacheDelay):
		return o.Cached(ctx, resource, namespace, name)
	}
}

// Cached implements identity.Objects.
func (o *objects) Cached(ctx context.Context, resource, namespace, name string) (runtime.Object, error) {
	return o.get(ctx, resource, namespace, name, "0")
}

// get reads the watch cache where any version will do ("0"), and the store otherwise.
func (o *objects) get(ctx context.Context, resource, namespace, name, version string) (runtime.Object, error) {
	getter, ok := o.resources[resource].(rest.Getter)
	if !ok {
		return nil, errors.New("no such resource: " + resource)
	}
	return getter.Get(genericapirequest.WithNamespace(ctx, namespace), name, &metav1.GetOptions{ResourceVersion: version})
}
