package rights

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fairway-net/fairway/internal/machineuser"
)

const (
	// GatewaysGroup is that of the processes that serve Gateways of a machine.
	GatewaysGroup = machineuser.GatewaysGroup
	// GatewayPrefix is how their user names begin; the name of their Node follows.
	GatewayPrefix = machineuser.GatewayPrefix
	gatewayGroup  = "gateway.networking.k8s.io"
)

// The kinds that a gateway reads one by one.
const (
	Secrets    = "secrets"
	ConfigMaps = "configmaps"
)

// Reference names a Secret or a ConfigMap.
type Reference struct {
	Resource string // Secrets or ConfigMaps
	types.NamespacedName
}

// GatewayReferences tells which Secrets and ConfigMaps Gateways, policies and Ingresses
// refer to.
type GatewayReferences struct {
	// List returns all that are referred to now.
	List func(ctx context.Context) ([]Reference, error)
	// HoldsToken reports whether a Secret holds a token, which no gateway may read,
	// whoever refers to it.
	HoldsToken func(ctx context.Context, namespace, name string) (bool, error)

	referred referred[Reference]
}

// allowedToGateways is compared with every request of every gateway.
var allowedToGateways = gatewayRules()

// gatewayRules is all that a gateway's credential may do, but for Secrets and ConfigMaps.
// It writes nothing.
func gatewayRules() []nodeRule {
	list := func(items ...string) []string { return items }
	follow := list("list", "watch")
	return []nodeRule{
		{PolicyRule: rule(list(corev1.GroupName), list("namespaces", "services"), follow)},
		{PolicyRule: rule(list(corev1.GroupName), list("nodes"), list("get")), only: own}, // for its zone
		{PolicyRule: rule(list(discoveryv1.GroupName), list("endpointslices"), follow)},
		{PolicyRule: rule(list(networkingv1.GroupName), list("ingresses", "ingressclasses"), follow)},
		{PolicyRule: rule(list(gatewayGroup), list("gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes",
			"tlsroutes", "tcproutes", "udproutes", "backendtlspolicies", "referencegrants"), follow)},
		{PolicyRule: rbacv1.PolicyRule{Verbs: list("get"), NonResourceURLs: append(append(list(), discovery...), healthURLs...)}},
	}
}

// named asks for a single object: a list or a watch has its name in the field selector.
func named(_ string, a authorizer.Attributes) bool {
	return a.GetNamespace() != "" && a.GetName() != ""
}

// authorizeGateway decides for members of GatewaysGroup, finally: a role that is bound
// to them gives them nothing.
func authorizeGateway(ctx context.Context, a authorizer.Attributes, references *GatewayReferences) (authorizer.Decision, string, error) {
	node, ok := strings.CutPrefix(a.GetUser().GetName(), GatewayPrefix)
	if !ok || node == "" {
		return authorizer.DecisionDeny, "a member of " + GatewaysGroup + " must be named " + GatewayPrefix + "NODE", nil
	}
	for i := range allowedToGateways {
		r := &allowedToGateways[i]
		if allows(&r.PolicyRule, a) && (r.only == nil || r.only(node, a)) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	if readsReferred(a) {
		return references.authorize(ctx, Reference{a.GetResource(), types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()}})
	}
	return authorizer.DecisionDeny, "a gateway may read what it serves, and write nothing", nil
}

// readsReferred reports whether a request is for a single Secret or ConfigMap.
func readsReferred(a authorizer.Attributes) bool {
	return a.IsResourceRequest() && slices.Contains(read, a.GetVerb()) && a.GetAPIGroup() == corev1.GroupName &&
		(a.GetResource() == Secrets || a.GetResource() == ConfigMaps) && a.GetSubresource() == "" && named("", a)
}

func (s *GatewayReferences) authorize(ctx context.Context, to Reference) (authorizer.Decision, string, error) {
	has, err := s.referred.has(ctx, to, s.List)
	if err != nil {
		return authorizer.DecisionDeny, "", fmt.Errorf("find what refers to %s %s: %w", to.Resource, to.NamespacedName, err)
	}
	if !has {
		return authorizer.DecisionDeny, "no Gateway, policy or Ingress refers to it", nil
	}
	if to.Resource == ConfigMaps {
		return authorizer.DecisionAllow, "", nil
	}
	token, err := s.HoldsToken(ctx, to.Namespace, to.Name)
	if token || err != nil {
		return authorizer.DecisionDeny, "a gateway reads no token", err
	}
	return authorizer.DecisionAllow, "", nil
}
