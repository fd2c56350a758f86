package registry

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairway-net/fairway/apiserver/validation"
)

// Access is what the kinds that ask and grant rights are served with.
type Access struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	Rules         authorizer.RuleResolver
	// Grants refuses Roles and bindings that give more than their author has.
	Grants Check
	// Issue answers a request for a ServiceAccount's token.
	Issue func(context.Context, *corev1.ServiceAccount, *authenticationv1.TokenRequest) error
}

func (a Access) authentication() Resources {
	return Resources{"tokenreviews": tokenReviews(a.Authenticator), "selfsubjectreviews": selfSubjectReviews()}
}

func (a Access) authorization() Resources {
	return Resources{
		"subjectaccessreviews":      subjectAccessReviews(a.Authorizer),
		"localsubjectaccessreviews": localSubjectAccessReviews(a.Authorizer),
		"selfsubjectaccessreviews":  selfSubjectAccessReviews(a.Authorizer),
		"selfsubjectrulesreviews":   selfSubjectRulesReviews(a.Rules),
	}
}

func (o *opener) rbac(access Access) Resources {
	out := Resources{}
	for _, k := range []openable{roles(), clusterRoles(), roleBindings(), clusterRoleBindings()} {
		main, _ := o.add(out, k)
		if o.err != nil {
			return nil
		}
		out[k.name()] = &checked{REST: main, check: access.Grants}
	}
	return out
}

// tokenREST issues tokens for ServiceAccounts (KEP-1205).
type tokenREST struct {
	store *genericregistry.Store
	issue func(context.Context, *corev1.ServiceAccount, *authenticationv1.TokenRequest) error
}

func (t *tokenREST) New() runtime.Object { return &authenticationv1.TokenRequest{} }

// Destroy leaves the store to its owner.
func (t *tokenREST) Destroy() {}

func (t *tokenREST) NamespaceScoped() bool { return true }

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (t *tokenREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
}

// Create implements rest.NamedCreater.
func (t *tokenREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	request, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TokenRequest: %T", obj))
	}
	if errs := validation.TokenRequest(request); len(errs) > 0 {
		return nil, apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), name, errs)
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	account, err := t.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	request.Name, request.Namespace = name, account.(*corev1.ServiceAccount).Namespace
	if len(options.DryRun) > 0 {
		return request, nil
	}
	return request, t.issue(ctx, account.(*corev1.ServiceAccount), request)
}
