package registry

import (
	"context"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// review answers a question that is posted: nothing is stored.
type review[T any, O reviewed[T]] struct {
	singular   string
	namespaced bool
	answer     func(ctx context.Context, asked O) error
}

type reviewed[T any] interface {
	*T
	runtime.Object
}

func (r *review[T, O]) New() runtime.Object     { return O(new(T)) }
func (r *review[T, O]) Destroy()                {}
func (r *review[T, O]) NamespaceScoped() bool   { return r.namespaced }
func (r *review[T, O]) GetSingularName() string { return r.singular }

// Create implements rest.Creater.
func (r *review[T, O]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	asked, ok := obj.(O)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a %s: %T", r.singular, obj))
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := r.answer(ctx, asked); err != nil {
		return nil, err
	}
	return asked, nil
}

// requester is the user of a request.
func requester(ctx context.Context) (user.Info, error) {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	return u, nil
}

func selfSubjectReviews() rest.Storage {
	return &review[authenticationv1.SelfSubjectReview, *authenticationv1.SelfSubjectReview]{
		singular: "selfsubjectreview",
		answer: func(ctx context.Context, r *authenticationv1.SelfSubjectReview) error {
			u, err := requester(ctx)
			if err != nil {
				return err
			}
			r.Status.UserInfo = userInfo(u)
			return nil
		},
	}
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	extra := map[string]authenticationv1.ExtraValue{}
	for key, values := range u.GetExtra() {
		extra[key] = values
	}
	return authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

func tokenReviews(requests authenticator.Request) rest.Storage {
	return &review[authenticationv1.TokenReview, *authenticationv1.TokenReview]{
		singular: "tokenreview",
		answer: func(ctx context.Context, r *authenticationv1.TokenReview) error {
			if r.Spec.Token == "" {
				return apierrors.NewBadRequest("token is required for TokenReview in authentication")
			}
			if len(r.Spec.Audiences) > 0 {
				ctx = authenticator.WithAudiences(ctx, r.Spec.Audiences)
			}
			request := (&http.Request{Header: http.Header{}}).WithContext(ctx)
			request.Header.Set("Authorization", "Bearer "+r.Spec.Token)
			response, ok, err := requests.AuthenticateRequest(request)
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: ok && response.User.GetName() != user.Anonymous}
			if err != nil {
				r.Status.Error = err.Error()
			}
			if !r.Status.Authenticated {
				return nil
			}
			r.Status.User = userInfo(response.User)
			r.Status.Audiences = response.Audiences
			return nil
		},
	}
}

func selfSubjectAccessReviews(a authorizer.Authorizer) rest.Storage {
	return &review[authorizationv1.SelfSubjectAccessReview, *authorizationv1.SelfSubjectAccessReview]{
		singular: "selfsubjectaccessreview",
		answer: func(ctx context.Context, r *authorizationv1.SelfSubjectAccessReview) error {
			u, err := requester(ctx)
			if err != nil {
				return err
			}
			return decide(ctx, a, u, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes, &r.Status)
		},
	}
}

func subjectAccessReviews(a authorizer.Authorizer) rest.Storage {
	return &review[authorizationv1.SubjectAccessReview, *authorizationv1.SubjectAccessReview]{
		singular: "subjectaccessreview",
		answer: func(ctx context.Context, r *authorizationv1.SubjectAccessReview) error {
			return decideFor(ctx, a, &r.Spec, &r.Status)
		},
	}
}

func localSubjectAccessReviews(a authorizer.Authorizer) rest.Storage {
	return &review[authorizationv1.LocalSubjectAccessReview, *authorizationv1.LocalSubjectAccessReview]{
		singular: "localsubjectaccessreview", namespaced: true,
		answer: func(ctx context.Context, r *authorizationv1.LocalSubjectAccessReview) error {
			namespace := genericapirequest.NamespaceValue(ctx)
			switch {
			case r.Spec.ResourceAttributes == nil:
				return apierrors.NewBadRequest("spec.resourceAttributes: must be given, since a namespace holds resources")
			case r.Spec.ResourceAttributes.Namespace != namespace:
				return apierrors.NewBadRequest(fmt.Sprintf("spec.resourceAttributes.namespace must match namespace: %v", namespace))
			}
			return decideFor(ctx, a, &r.Spec, &r.Status)
		},
	}
}

func decideFor(ctx context.Context, a authorizer.Authorizer, spec *authorizationv1.SubjectAccessReviewSpec, status *authorizationv1.SubjectAccessReviewStatus) error {
	if spec.User == "" && len(spec.Groups) == 0 {
		return apierrors.NewBadRequest("spec.user: at least one of user or group must be specified")
	}
	u := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		u.Extra[key] = values
	}
	return decide(ctx, a, u, spec.ResourceAttributes, spec.NonResourceAttributes, status)
}

func decide(ctx context.Context, a authorizer.Authorizer, u user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes, status *authorizationv1.SubjectAccessReviewStatus) error {
	if (resource == nil) == (path == nil) {
		return apierrors.NewBadRequest("spec: exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
	request := authorizer.AttributesRecord{User: u}
	if path != nil {
		request.Verb, request.Path = path.Verb, path.Path
	} else {
		request.ResourceRequest = true
		request.Verb, request.Namespace, request.Name = resource.Verb, resource.Namespace, resource.Name
		request.APIGroup, request.APIVersion = resource.Group, resource.Version
		request.Resource, request.Subresource = resource.Resource, resource.Subresource
		selectors(&request, resource)
	}
	decision, reason, err := a.Authorize(ctx, request)
	*status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return nil
}

// selectors takes over what the question says of field and label selectors.
func selectors(request *authorizer.AttributesRecord, r *authorizationv1.ResourceAttributes) {
	if r.FieldSelector != nil {
		for _, q := range r.FieldSelector.Requirements {
			if q.Operator == metav1.FieldSelectorOpIn && len(q.Values) == 1 {
				request.FieldSelectorRequirements = append(request.FieldSelectorRequirements, equals(q.Key, q.Values[0]))
			}
		}
	}
}

func selfSubjectRulesReviews(rules authorizer.RuleResolver) rest.Storage {
	return &review[authorizationv1.SelfSubjectRulesReview, *authorizationv1.SelfSubjectRulesReview]{
		singular: "selfsubjectrulesreview",
		answer: func(ctx context.Context, r *authorizationv1.SelfSubjectRulesReview) error {
			u, err := requester(ctx)
			if err != nil {
				return err
			}
			if r.Spec.Namespace == "" {
				return apierrors.NewBadRequest("no namespace on request")
			}
			resources, paths, incomplete, err := rules.RulesFor(ctx, u, r.Spec.Namespace)
			r.Status = authorizationv1.SubjectRulesReviewStatus{
				ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: incomplete,
			}
			if err != nil {
				r.Status.EvaluationError = err.Error()
			}
			for _, rule := range resources {
				r.Status.ResourceRules = append(r.Status.ResourceRules, authorizationv1.ResourceRule{
					Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
				})
			}
			for _, rule := range paths {
				r.Status.NonResourceRules = append(r.Status.NonResourceRules, authorizationv1.NonResourceRule{
					Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs(),
				})
			}
			return nil
		},
	}
}

func equals(field, value string) fields.Requirement {
	return fields.Requirement{Operator: selection.Equals, Field: field, Value: value}
}
