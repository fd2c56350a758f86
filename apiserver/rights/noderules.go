package rights

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fairway-net/fairway/internal/machineuser"
)

// FairwayGroup is the API group of Fairway's own configuration, and MetalLBGroup
// that of MetalLB's, which is understood too.
const (
	FairwayGroup = "fairway.dev"
	MetalLBGroup = "metallb.io"
)

var (
	read       = []string{"get", "list", "watch"}
	discovery  = []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/"}
	healthURLs = []string{"/healthz", "/livez", "/readyz"}
	// authoritiesURL says what clients have to know of the servers' authorities.
	authoritiesURL = "/fairway/authorities"
)

// nodeRule is a line of a node's allow-list.
type nodeRule struct {
	rbacv1.PolicyRule
	// only says what else a request must be. nil asks for nothing more.
	only func(node string, a authorizer.Attributes) bool
}

func rule(groups, resources, verbs []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: verbs}
}

// nodeRules is all that a machine's credential may do. What it writes is
// looked at once more by NodeAdmission.
func nodeRules() []nodeRule {
	list := func(items ...string) []string { return items }
	return []nodeRule{
		// What an agent programs the kernel from, and how it is set up.
		{PolicyRule: rule(list(corev1.GroupName), list("services", "nodes", "namespaces"), read)},
		{PolicyRule: rule(list(discoveryv1.GroupName), list("endpointslices"), read)},
		{PolicyRule: rule(list(networkingv1.GroupName), list("servicecidrs"), read)},
		{PolicyRule: rule(list(FairwayGroup, MetalLBGroup), list("*"), read)},
		// The key that nodes sign with when they agree on who announces what, what of
		// MetalLB's has no effect, and what this node announces. The passwords of BGP
		// sessions are besides: see PeerSecrets.
		{PolicyRule: rule(list(corev1.GroupName), list("secrets", "configmaps"), list("get")), only: ofAnnouncing},
		{PolicyRule: rule(list(corev1.GroupName), list("secrets"), list("list", "watch")), only: ofAnnouncing},
		{PolicyRule: rule(list(MetalLBGroup), list("servicel2statuses", "servicebgpstatuses", "configurationstates"), list("create"))},
		{PolicyRule: rule(list(MetalLBGroup), list("servicel2statuses", "servicel2statuses/status", "servicebgpstatuses", "servicebgpstatuses/status",
			"configurationstates", "configurationstates/status"), list("update", "patch", "delete")), only: ownAnnouncements},
		// Its own Pods, for names.
		{PolicyRule: rule(list(corev1.GroupName), list("pods"), list("list", "watch")), only: ownPods},
		// The machine itself. Creation has no name; NodeAdmission sees it.
		{PolicyRule: rule(list(corev1.GroupName), list("nodes"), list("create")), only: ownOrUnnamed},
		{PolicyRule: rule(list(corev1.GroupName), list("nodes", "nodes/status"), list("update", "patch")), only: own},
		{PolicyRule: rule(list(corev1.GroupName), list("nodes"), list("delete")), only: own}, // when it leaves
		// Its heartbeat. Those of others say who is alive.
		{PolicyRule: rule(list(coordinationv1.GroupName), list("leases"), read), only: inNodeLeases},
		{PolicyRule: rule(list(coordinationv1.GroupName), list("leases"), list("create")), only: both(inNodeLeases, ownOrUnnamed)},
		{PolicyRule: rule(list(coordinationv1.GroupName), list("leases"), list("update", "patch", "delete")), only: both(inNodeLeases, own)},
		// That it serves Gateways, if it may (see NodeAdmission), and which there are. What
		// they serve is read by another credential: see gatewayRules.
		{PolicyRule: rule(list(coordinationv1.GroupName), list("leases"), list("create")), only: both(inSystem, ownGatewayLeaseOrUnnamed)},
		{PolicyRule: rule(list(coordinationv1.GroupName), list("leases"), list("get", "update", "delete")), only: both(inSystem, ownGatewayLease)},
		{PolicyRule: rule(list(gatewayGroup), list("gateways"), list("list")), only: named},
		// Endpoints that it publishes itself; NodeAdmission sees whose they are.
		{PolicyRule: rule(list(discoveryv1.GroupName), list("endpointslices"), list("create", "update", "patch", "delete"))},
		{PolicyRule: rule(list(corev1.GroupName, eventsv1.GroupName), list("events"), list("create", "update", "patch"))},
		// Renewing its certificate.
		{PolicyRule: rule(list(certificatesv1.GroupName), list("certificatesigningrequests"), append(list("create"), read...))},
		// Asking who it is and what it may do.
		{PolicyRule: rule(list(authorizationv1.GroupName), list("selfsubjectaccessreviews", "selfsubjectrulesreviews"), list("create"))},
		{PolicyRule: rule(list("authentication.k8s.io"), list("selfsubjectreviews"), list("create"))},
		{PolicyRule: rbacv1.PolicyRule{Verbs: list("get"), NonResourceURLs: append(append(list(authoritiesURL), discovery...), healthURLs...)}},
	}
}

// NodeRules returns a node's allow-list as rules, without what names and
// selectors they ask for besides.
func NodeRules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, r := range nodeRules() {
		rules = append(rules, r.PolicyRule)
	}
	return rules
}

func own(node string, a authorizer.Attributes) bool { return a.GetName() == node }

func ownOrUnnamed(node string, a authorizer.Attributes) bool {
	return a.GetName() == node || a.GetName() == ""
}

func inNodeLeases(_ string, a authorizer.Attributes) bool {
	return a.GetNamespace() == corev1.NamespaceNodeLease
}

// inSystem is where engines of Gateways say that they are there.
func inSystem(_ string, a authorizer.Attributes) bool {
	return a.GetNamespace() == metav1.NamespaceSystem
}

func ownGatewayLease(node string, a authorizer.Attributes) bool {
	return a.GetName() == machineuser.GatewayLease(node)
}

func ownGatewayLeaseOrUnnamed(node string, a authorizer.Attributes) bool {
	return a.GetName() == "" || ownGatewayLease(node, a)
}

func both(f, g func(string, authorizer.Attributes) bool) func(string, authorizer.Attributes) bool {
	return func(node string, a authorizer.Attributes) bool { return f(node, a) && g(node, a) }
}

// ownAnnouncements have the node in their names: "l2-NODE.HASH", "bgp-NODE.HASH"
// and "speaker-NODE".
func ownAnnouncements(node string, a authorizer.Attributes) bool {
	return isOwnAnnouncement(node, a.GetName())
}

// isOwnAnnouncement reports whether an object of MetalLB's, by its name, says what
// a machine announces.
func isOwnAnnouncement(node, status string) bool {
	dot := strings.LastIndex(status, ".")
	return status == "speaker-"+node || dot > 0 && (status[:dot] == "l2-"+node || status[:dot] == "bgp-"+node)
}

// ownPods asks for the field selector spec.nodeName=NODE.
func ownPods(node string, a authorizer.Attributes) bool {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return false
	}
	for _, r := range requirements {
		if r.Field == "spec.nodeName" && r.Value == node && (r.Operator == "=" || r.Operator == "==") {
			return true
		}
	}
	return false
}
