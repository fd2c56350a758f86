package rights

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// BootstrappersGroup is that of users who authenticate with a join token.
	BootstrappersGroup = "system:bootstrappers"

	aggregateLabel = "rbac.authorization.k8s.io/aggregate-to-"
)

var (
	write = []string{"create", "delete", "deletecollection", "patch", "update"}
)

// namespaced are the kinds that people who work in a namespace write, by group.
// Endpoints and EndpointSlices aren't among them: who writes them has others' traffic go
// to any address, past NetworkPolicies (CVE-2021-25740).
func namespaced() map[string][]string {
	return map[string][]string{
		"":                    {"configmaps", "events", "pods", "podtemplates", "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services"},
		"apps":                {"daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale"},
		"batch":               {"cronjobs", "jobs"},
		"policy":              {"poddisruptionbudgets"},
		"events.k8s.io":       {"events"},
		"networking.k8s.io":   {"ingresses", "networkpolicies"},
		"coordination.k8s.io": {"leases"},
		"gateway.networking.k8s.io": {
			"gateways", "httproutes", "grpcroutes", "tcproutes", "tlsroutes", "udproutes", "referencegrants", "backendtlspolicies",
		},
	}
}

// viewed are the kinds that people who look into a namespace read besides.
// Secrets are not among them: reading a Secret grants its powers.
func viewed() map[string][]string {
	out := namespaced()
	out["discovery.k8s.io"] = []string{"endpointslices"}
	out[""] = append(out[""], "bindings", "endpoints", "limitranges", "namespaces", "namespaces/status", "pods/log", "pods/status", "resourcequotas", "services/status")
	out["apps"] = append(out["apps"], "deployments/status", "replicasets/status")
	out["networking.k8s.io"] = append(out["networking.k8s.io"], "ingresses/status")
	return out
}

func rules(groups map[string][]string, verbs []string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for group, resources := range groups {
		out = append(out, rule([]string{group}, resources, verbs))
	}
	slices.SortFunc(out, func(a, b rbacv1.PolicyRule) int { return slices.Compare(a.APIGroups, b.APIGroups) })
	return out
}

// ClusterRoles returns the roles that every cluster has, under the names and
// with the meaning that they have in Kubernetes, over the kinds served here.
func ClusterRoles() []rbacv1.ClusterRole {
	view := rules(viewed(), read)
	edit := append(rules(namespaced(), write),
		rule([]string{""}, []string{"pods/attach", "pods/eviction", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy"}, append([]string{"get"}, write...)),
		rule([]string{""}, []string{"secrets"}, append(slices.Clone(read), write...)),
		rule([]string{""}, []string{"serviceaccounts/token"}, []string{"create"}),
		rule([]string{""}, []string{"serviceaccounts"}, []string{"impersonate"}))
	admin := []rbacv1.PolicyRule{
		rule([]string{"authorization.k8s.io"}, []string{"localsubjectaccessreviews"}, []string{"create"}),
		rule([]string{rbacv1.GroupName}, []string{"roles", "rolebindings"}, append(slices.Clone(read), write...)),
	}
	return []rbacv1.ClusterRole{
		role("cluster-admin", everything()...),
		aggregated("admin", slices.Concat(admin, edit, view), "admin", "edit", "view"),
		aggregated("edit", slices.Concat(edit, view), "edit", "view"),
		aggregated("view", view, "view"),
		part("admin", admin), part("edit", edit), part("view", view),
		role("system:basic-user",
			rule([]string{"authorization.k8s.io"}, []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}, []string{"create"}),
			rule([]string{"authentication.k8s.io"}, []string{"selfsubjectreviews"}, []string{"create"})),
		role("system:discovery", paths(append(slices.Clone(discovery), healthURLs...)...)),
		role("system:public-info-viewer", paths(append(slices.Clone(healthURLs), "/version", "/version/")...)),
		role("system:monitoring", paths("/metrics", "/metrics/slis", "/livez", "/livez/*", "/readyz", "/readyz/*", "/healthz", "/healthz/*")),
		role("system:node", NodeRules()...),
		role("system:node-bootstrapper",
			rule([]string{"certificates.k8s.io"}, []string{"certificatesigningrequests"}, append([]string{"create"}, read...))),
		role("system:auth-delegator",
			rule([]string{"authentication.k8s.io"}, []string{"tokenreviews"}, []string{"create"}),
			rule([]string{"authorization.k8s.io"}, []string{"subjectaccessreviews"}, []string{"create"})),
		role("system:service-account-issuer-discovery", paths("/.well-known/openid-configuration", "/openid/v1/jwks")),
	}
}

// ClusterRoleBindings returns the bindings that every cluster has. Machines
// have none: what they may do is decided before roles are.
func ClusterRoleBindings() []rbacv1.ClusterRoleBinding {
	return []rbacv1.ClusterRoleBinding{
		binding("cluster-admin", user.SystemPrivilegedGroup),
		binding("system:basic-user", user.AllAuthenticated),
		binding("system:discovery", user.AllAuthenticated),
		binding("system:public-info-viewer", user.AllAuthenticated, user.AllUnauthenticated),
		binding("system:monitoring", user.MonitoringGroup),
		binding("system:node-bootstrapper", BootstrappersGroup),
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

func role(name string, rules ...rbacv1.PolicyRule) rbacv1.ClusterRole {
	return rbacv1.ClusterRole{ObjectMeta: meta(name), Rules: rules}
}

// aggregated is a role made of all roles that are labelled as parts of it. Its
// rules are those that the parts have at first.
func aggregated(name string, rules []rbacv1.PolicyRule, parts ...string) rbacv1.ClusterRole {
	r := role(name, rules...)
	r.AggregationRule = &rbacv1.AggregationRule{}
	for _, p := range parts {
		r.AggregationRule.ClusterRoleSelectors = append(r.AggregationRule.ClusterRoleSelectors,
			metav1.LabelSelector{MatchLabels: map[string]string{aggregateLabel + p: "true"}})
	}
	return r
}

// part is the part of an aggregated role that Fairway brings.
func part(of string, rules []rbacv1.PolicyRule) rbacv1.ClusterRole {
	r := role("system:aggregate-to-"+of, rules...)
	r.Labels[aggregateLabel+of] = "true"
	return r
}

func paths(urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: urls}
}

func binding(role string, groups ...string) rbacv1.ClusterRoleBinding {
	b := rbacv1.ClusterRoleBinding{
		ObjectMeta: meta(role),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	for _, g := range groups {
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: g})
	}
	return b
}
