package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/apiserver/rights"
)

var everyVerb = []string{
	"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
	"proxy", "bind", "escalate", "impersonate", "approve", "sign", "use", "*",
}

// nodeTable is all that the machine n1 may do: resource, namespace and name
// ("" of others than n1), then the verbs. What isn't in it is denied.
var nodeTable = map[string]string{
	"services * *":                        "get list watch",
	"nodes * *":                           "get list watch",
	"nodes * ":                            "get list watch create",
	"nodes * n1":                          "get list watch create update patch delete",
	"nodes/status * n1":                   "update patch",
	"namespaces * *":                      "get list watch",
	"events * *":                          "create update patch",
	"endpointslices.discovery.k8s.io * *": "get list watch create update patch delete",
	"leases.coordination.k8s.io kube-node-lease *":              "get list watch",
	"leases.coordination.k8s.io kube-node-lease ":               "get list watch create",
	"leases.coordination.k8s.io kube-node-lease n1":             "get list watch create update patch delete",
	"leases.coordination.k8s.io kube-system ":                   "create",
	"leases.coordination.k8s.io kube-system fairway-gateway-n1": "get create update delete",
	"certificatesigningrequests.certificates.k8s.io * *":        "get list watch create",
	"selfsubjectaccessreviews.authorization.k8s.io * *":         "create",
	"selfsubjectrulesreviews.authorization.k8s.io * *":          "create",
	"selfsubjectreviews.authentication.k8s.io * *":              "create",
	"servicecidrs.networking.k8s.io * *":                        "get list watch",
	"events.events.k8s.io * *":                                  "create update patch",
	"secrets metallb-system fairway-announce":                   "get list watch",
	"configmaps metallb-system bgpextras":                       "get",
}

// expectedVerbs finds the most particular line of the table.
func expectedVerbs(resource, namespace, name string) []string {
	// The configuration of agents.
	if full, _, _ := strings.Cut(resource, "/"); strings.HasSuffix(full, ".fairway.dev") || strings.HasSuffix(full, ".metallb.io") {
		verbs := []string{"get", "list", "watch"}
		if resource == "servicel2statuses.metallb.io" || resource == "servicebgpstatuses.metallb.io" || resource == "configurationstates.metallb.io" {
			verbs = append(verbs, "create") // what it announces itself; it changes only its own
		}
		return verbs
	}
	if resource == "gateways.gateway.networking.k8s.io" && namespace != "" && name != "" {
		return []string{"list"}
	}
	for _, key := range []string{
		resource + " " + namespace + " " + name, resource + " " + namespace + " *",
		resource + " * " + name, resource + " * *",
	} {
		if verbs, ok := nodeTable[key]; ok {
			return strings.Fields(verbs)
		}
	}
	return nil
}

// TestEveryVerbOnEveryResource tries all there is, as a machine, as users that
// look like one, and as nobody. Roles bound to all of them change nothing for a
// machine.
func TestEveryVerbOnEveryResource(t *testing.T) {
	s := sharedServer(t)
	kubectl(t, s, "", "create", "clusterrolebinding", "everybody", "--clusterrole=cluster-admin", "--group=system:nodes", "--user=system:node:n1")
	node := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	for name, u := range map[string]user.Info{
		"node":                         node,
		"node that isn't named as one": &user.DefaultInfo{Name: "n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}},
		"node without a name":          &user.DefaultInfo{Name: "system:node:", Groups: []string{user.NodesGroup, user.AllAuthenticated}},
		"anonymous":                    &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		"known, without roles":         &user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}},
	} {
		for _, resource := range servedResources(t, s) {
			for _, verb := range everyVerb {
				namespaces, objects := []string{"", "default", "kube-system", "kube-node-lease"}, []string{"", "n1", "n2", "kubernetes"}
				if resource == "secrets" || resource == "configmaps" {
					namespaces, objects = append(namespaces, "metallb-system"), append(objects, "fairway-announce", "bgpextras")
				}
				if resource == "leases.coordination.k8s.io" {
					objects = append(objects, "fairway-gateway-n1", "fairway-gateway-n2")
				}
				for _, namespace := range namespaces {
					for _, object := range objects {
						want := false
						switch {
						case u == node:
							want = slices.Contains(expectedVerbs(resource, namespace, object), verb)
						case name == "known, without roles":
							want = verb == "create" && strings.HasPrefix(resource, "selfsubject")
						}
						if got := allowed(t, s, u, verb, resource, namespace, object); got != want {
							t.Errorf("%s: %s %s %q in %q: allowed %v, want %v", name, verb, resource, object, namespace, got, want)
						}
					}
				}
			}
		}
	}
	ownPods := authorizer.AttributesRecord{User: node, Verb: "watch", Resource: "pods", APIVersion: "v1", ResourceRequest: true}
	for selector, want := range map[string]authorizer.Decision{"spec.nodeName=n1": authorizer.DecisionAllow, "spec.nodeName=n2": authorizer.DecisionDeny, "spec.nodeName!=n1": authorizer.DecisionDeny} {
		ownPods.FieldSelectorRequirements = fields.ParseSelectorOrDie(selector).Requirements()
		if got, _, err := s.access.authorizer.Authorize(t.Context(), ownPods); got != want || err != nil {
			t.Errorf("a node watching Pods with %s: %v, %v, want %v", selector, got, err, want)
		}
	}
}

func servedResources(t *testing.T, s *Server) []string {
	t.Helper()
	_, lists, err := client(t, s).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, list := range lists {
		group, _, found := strings.Cut(list.GroupVersion, "/")
		for _, r := range list.APIResources {
			resource, subresource, _ := strings.Cut(r.Name, "/")
			if found {
				resource += "." + group
			}
			if subresource != "" {
				resource += "/" + subresource
			}
			names = append(names, resource)
		}
	}
	if len(names) < 40 {
		t.Fatalf("only %d resources are served: %v", len(names), names)
	}
	return append(names, "made.up.example.com", "signers.certificates.k8s.io", "users", "groups")
}

func allowed(t *testing.T, s *Server, u user.Info, verb, resource, namespace, name string) bool {
	t.Helper()
	full, subresource, _ := strings.Cut(resource, "/")
	plain, group, _ := strings.Cut(full, ".")
	decision, _, err := s.access.authorizer.Authorize(t.Context(), authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: group, APIVersion: "v1", Resource: plain, Subresource: subresource, Namespace: namespace, Name: name, ResourceRequest: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return decision == authorizer.DecisionAllow
}

// TestNodePaths: what a machine and nobody may ask for that is no object.
func TestNodePaths(t *testing.T) {
	s := sharedServer(t)
	for who, allowed := range map[*user.DefaultInfo][]string{
		{Name: "system:node:n1", Groups: []string{user.NodesGroup, user.AllAuthenticated}}: {"/api", "/apis", "/openapi/v3", "/version", "/healthz", "/livez", "/readyz", AuthoritiesPath},
		{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}:                  nil,
	} {
		for _, path := range []string{
			"/api", "/apis", "/openapi/v3", "/version", "/healthz", "/livez", "/readyz", "/", "/metrics", "/metrics/slis", "/statusz", "/flagz", "/configz", "/logs", "/debug/pprof/", "/debug/flags/v",
			SnapshotPath, MembersPath, ServerTokensPath, rights.JoinPath, AuthoritiesPath,
		} {
			for _, verb := range []string{"get", "head", "post", "put", "patch", "delete"} {
				// Whoever has no credentials is let through to public paths by the authenticator.
				want := verb == "get" && slices.Contains(append(allowed, publicPaths...), path)
				got, _, err := s.access.authorizer.Authorize(t.Context(), authorizer.AttributesRecord{User: who, Verb: verb, Path: path})
				if err != nil || (got == authorizer.DecisionAllow) != want {
					t.Errorf("%s: %s %s: %v, %v, want allowed %v", who.Name, verb, path, got, err, want)
				}
			}
		}
	}
}

// TestPasswordsOfPeers: a machine reads those Secrets of MetalLB's namespace that
// a BGPPeer refers to, as soon as one does, and no others.
func TestPasswordsOfPeers(t *testing.T) {
	s := sharedServer(t)
	admin, ctx := client(t, s), within(t)
	kubeconfig, err := s.NodeKubeconfig("n1")
	if err != nil {
		t.Fatal(err)
	}
	node := kubeconfigClient(t, kubeconfig)
	create := func(path, manifest string) {
		t.Helper()
		err := admin.RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/yaml").Body([]byte(manifest)).Do(ctx).Error()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{"metallb-system", "other"} {
		create("/api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")
		for _, secret := range []string{"fairway-announce", "password", "second", "memberlist"} {
			create("/api/v1/namespaces/"+namespace+"/secrets", "{apiVersion: v1, kind: Secret, metadata: {name: "+secret+"}}")
		}
	}
	for _, name := range []string{"bgpextras", "others"} {
		create("/api/v1/namespaces/metallb-system/configmaps", "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+"}}")
	}
	check := func(when string, want ...string) {
		t.Helper()
		for _, namespace := range []string{"metallb-system", "other"} {
			for _, name := range []string{"fairway-announce", "password", "second", "memberlist", "missing"} {
				_, err := node.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
				ok := namespace == "metallb-system" && slices.Contains(want, name)
				if ok && err != nil || !ok && !apierrors.IsForbidden(err) {
					t.Errorf("%s, Secret %s/%s: %v, want allowed %v", when, namespace, name, err, ok)
				}
			}
			if _, err := node.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=password"}); !apierrors.IsForbidden(err) {
				t.Errorf("%s, list of Secrets in %s: %v, want forbidden", when, namespace, err)
			}
		}
	}
	const peers = "/apis/metallb.io/v1beta2/namespaces/%s/bgppeers"
	peer := func(namespace, name, secret string) {
		t.Helper()
		create(fmt.Sprintf(peers, namespace), "{apiVersion: metallb.io/v1beta2, kind: BGPPeer, metadata: {name: "+name+
			"}, spec: {myASN: 64500, peerASN: 64501, peerAddress: 192.0.2.1, passwordSecret: {name: "+secret+"}}}")
	}
	check("without BGPPeers", "fairway-announce")
	peer("other", "elsewhere", "memberlist")
	check("with a BGPPeer in another namespace", "fairway-announce")
	peer("metallb-system", "one", "password")
	check("with a BGPPeer", "fairway-announce", "password")
	peer("metallb-system", "two", "second")
	check("with two", "fairway-announce", "password", "second")
	// A BGPPeer that refers to a ServiceAccount's token gives it to no machine.
	create("/api/v1/namespaces/metallb-system/secrets", "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: token, annotations: {kubernetes.io/service-account.name: default}}}")
	peer("metallb-system", "three", "token")
	if _, err := node.CoreV1().Secrets("metallb-system").Get(ctx, "token", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Secret with a token that a BGPPeer refers to: %v, want forbidden", err)
	}
	for name, want := range map[string]bool{"bgpextras": true, "others": false} {
		if _, err := node.CoreV1().ConfigMaps("metallb-system").Get(ctx, name, metav1.GetOptions{}); want != (err == nil) || !want && !apierrors.IsForbidden(err) {
			t.Errorf("ConfigMap %s: %v, want allowed %v", name, err, want)
		}
	}
}

// TestNodeTricks: what a machine's credential could do with the objects that it
// may write, and may not.
func TestNodeTricks(t *testing.T) {
	s := start(t, testConfig(t)) // whose configuration it changes
	admin, ctx := client(t, s), within(t)
	node := clientOf(t, s, func() ([]byte, error) { return s.NodeKubeconfig("n1") })
	for _, manifest := range []string{
		"{apiVersion: v1, kind: Service, metadata: {name: mine, annotations: {fairway.dev/publishers: 'n0, n1'}}, spec: {ports: [{port: 80}]}}",
		"{apiVersion: v1, kind: Service, metadata: {name: closed, annotations: {fairway.dev/publishers: n2}}, spec: {ports: [{port: 80}]}}",
		"{apiVersion: v1, kind: Node, metadata: {name: n0, annotations: {publish.fairway.dev/ranges: 203.0.113.0/24}}}",
		"{apiVersion: v1, kind: Service, metadata: {name: app}, spec: {selector: {app: a}, ports: [{port: 80}]}}",
		"{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: others}, addressType: IPv4, endpoints: []}",
	} {
		kubectl(t, s, manifest, "apply", "-f", "-")
	}
	register(ctx, t, admin, "n1", "192.0.2.1")
	register(ctx, t, admin, "n3", "192.0.2.3")
	slices := node.DiscoveryV1().EndpointSlices("default")
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("a node %s: %v, want forbidden", what, err)
		}
	}
	allow := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("a node can't %s: %v", what, err)
		}
	}
	create := func(change func(*discoveryv1.EndpointSlice)) error {
		slice := publishedSlice("n1")
		change(slice)
		_, err := node.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{})
		return err
	}
	allow("publish endpoints", create(func(*discoveryv1.EndpointSlice) {}))
	refused("publishing another address", create(func(e *discoveryv1.EndpointSlice) { e.Name, e.Endpoints[0].Addresses = "x", []string{"198.51.100.66"} }))
	refused("publishing another node's address", create(func(e *discoveryv1.EndpointSlice) { e.Name, e.Endpoints[0].Addresses = "x", []string{"192.0.2.3"} }))
	refused("publishing another address as DNS", create(func(e *discoveryv1.EndpointSlice) {
		e.Namespace, e.Name, e.Labels = "kube-system", "kube-dns-n1", map[string]string{discoveryv1.LabelServiceName: "kube-dns"}
		e.Endpoints[0].Addresses = []string{"198.51.100.66"}
	}))
	refused("publishing for a Service that doesn't want it", create(func(e *discoveryv1.EndpointSlice) { e.Name, e.Labels[discoveryv1.LabelServiceName] = "x", "closed" }))
	_, err := slices.Patch(ctx, "published", types.MergePatchType, []byte(`{"endpoints":[{"addresses":["198.51.100.66"],"nodeName":"n1"}]}`), metav1.PatchOptions{})
	refused("moving its endpoints elsewhere", err)
	_, err = slices.Patch(ctx, "published", types.MergePatchType, []byte(`{"metadata":{"labels":{"kubernetes.io/service-name":"closed"}}}`), metav1.PatchOptions{})
	refused("moving its endpoints to a Service that doesn't want them", err)
	engine := func(namespace, name, holder string) error {
		_, err := node.CoordinationV1().Leases(namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{})
		return err
	}
	refused("saying that another serves Gateways", engine("kube-system", "fairway-gateway-n3", "n3"))
	refused("saying so in its own Lease", engine("kube-system", "fairway-gateway-n1", "n3"))
	refused("taking the controllers' Lease", engine("kube-system", "fairway-controllers", "n1"))
	refused("serving Gateways elsewhere", engine("default", "fairway-gateway-n1", "n1"))
	allow("serve Gateways", engine("kube-system", "fairway-gateway-n1", "n1"))
	s.config.GatewayMachines = []string{"n3"}
	held, err := node.CoordinationV1().Leases("kube-system").Get(ctx, "fairway-gateway-n1", metav1.GetOptions{})
	allow("read its Lease", err)
	_, err = node.CoordinationV1().Leases("kube-system").Update(ctx, held, metav1.UpdateOptions{})
	refused("serving Gateways though it isn't named", err)
	allow("report health checks", create(func(e *discoveryv1.EndpointSlice) {
		e.Name, e.Labels = "report", map[string]string{"fairway.dev/node": "n1", "fairway.dev/health-of": "mine"}
	}))
	allow("publish its DNS", create(func(e *discoveryv1.EndpointSlice) {
		e.Namespace, e.Name, e.Labels = "kube-system", "kube-dns-n1", map[string]string{discoveryv1.LabelServiceName: "kube-dns"}
	}))
	refused("publishing for another node", create(func(e *discoveryv1.EndpointSlice) { e.Name, e.Labels["fairway.dev/node"] = "x", "n2" }))
	refused("publishing endpoints on another node", create(func(e *discoveryv1.EndpointSlice) { other := "n2"; e.Name, e.Endpoints[0].NodeName = "x", &other }))
	refused("publishing endpoints on no node", create(func(e *discoveryv1.EndpointSlice) { e.Name, e.Endpoints[0].NodeName = "x", nil }))
	refused("publishing for a Service with a selector", create(func(e *discoveryv1.EndpointSlice) { e.Name, e.Labels[discoveryv1.LabelServiceName] = "x", "app" }))
	refused("publishing for the API", create(func(e *discoveryv1.EndpointSlice) { e.Name, e.Labels[discoveryv1.LabelServiceName] = "x", "kubernetes" }))
	refused("publishing DNS of another", create(func(e *discoveryv1.EndpointSlice) {
		e.Namespace, e.Name, e.Labels = "kube-system", "kube-dns-n2", map[string]string{discoveryv1.LabelServiceName: "kube-dns"}
	}))
	refused("owning what it doesn't", create(func(e *discoveryv1.EndpointSlice) {
		e.Name, e.OwnerReferences = "x", []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "app", UID: "1"}}
	}))
	refused("setting finalizers", create(func(e *discoveryv1.EndpointSlice) { e.Name, e.Finalizers = "x", []string{"example.com/f"} }))
	_, err = slices.Patch(ctx, "others", types.MergePatchType, []byte(`{"metadata":{"labels":{"fairway.dev/node":"n1"}}}`), metav1.PatchOptions{})
	refused("taking a slice over", err)
	refused("deleting a slice of others", slices.Delete(ctx, "others", metav1.DeleteOptions{}))
	allow("withdraw its endpoints", slices.Delete(ctx, "published", metav1.DeleteOptions{}))

	announcing(ctx, t, node, refused, allow)

	_, err = node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{})
	refused("making a Node of another name", err)
	tainted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}}}
	_, err = node.CoreV1().Nodes().Create(ctx, tainted, metav1.CreateOptions{})
	refused("registering with a taint", err)
	if err := admin.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	allow("register", err)
	for _, address := range []string{"127.0.0.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "10.96.0.1", "192.0.2.3", "::ffff:192.0.2.3"} {
		_, err := node.CoreV1().Nodes().Patch(ctx, "n1", types.StrategicMergePatchType, []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"`+address+`"}]}}`), metav1.PatchOptions{}, "status")
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("a node says that it is at %s: %v, want forbidden", address, err)
		}
	}
	_, err = node.CoreV1().Nodes().Patch(ctx, "n1", types.StrategicMergePatchType, []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`), metav1.PatchOptions{}, "status")
	allow("say where it is", err)
	patchNodes(ctx, t, node, admin, refused)
}

// register makes a Node that is ready, at an address.
func register(ctx context.Context, t *testing.T, admin kubernetes.Interface, name, address string) {
	t.Helper()
	node, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := admin.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// announcing: a machine says what it announces itself, and nothing that keeps a
// namespace from going.
func announcing(ctx context.Context, t *testing.T, node kubernetes.Interface, refused, allow func(string, error)) {
	t.Helper()
	write := func(kind, name, meta string) error {
		body := "{apiVersion: metallb.io/v1beta1, kind: " + kind + ", metadata: {name: " + name + meta + "}}"
		return node.Discovery().RESTClient().Post().AbsPath("/apis/metallb.io/v1beta1/namespaces/default", strings.ToLower(kind)+"es").
			SetHeader("Content-Type", "application/yaml").Body([]byte(body)).Do(ctx).Error()
	}
	allow("say what it announces", write("ServiceL2Status", "l2-n1.0123456789", ""))
	allow("say what it announces by BGP", write("ServiceBGPStatus", "bgp-n1.0123456789", ""))
	refused("saying what another announces", write("ServiceL2Status", "l2-n2.0123456789", ""))
	refused("saying what another one with a longer name announces", write("ServiceL2Status", "l2-n1.n2.0123456789", ""))
	refused("making an object of any name", write("ServiceBGPStatus", "any", ""))
	refused("setting a finalizer on what it announces", write("ServiceL2Status", "l2-n1.1", ", finalizers: [example.com/f]"))
	refused("having what it announces owned", write("ServiceL2Status", "l2-n1.2", ", ownerReferences: [{apiVersion: v1, kind: Service, name: app, uid: '1'}]"))
}

func patchNodes(ctx context.Context, t *testing.T, node, admin kubernetes.Interface, refused func(string, error)) {
	t.Helper()
	for what, patch := range map[string]string{
		"labelling itself as it likes":  `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"x"}}}`,
		"annotating itself as it likes": `{"metadata":{"annotations":{"example.com/a":"x"}}}`,
		"allowing itself addresses":     `{"metadata":{"annotations":{"publish.fairway.dev/ranges":"0.0.0.0/0"}}}`,
		"belonging to a Service":        `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Service","name":"app","uid":"1"}]}}`,
		"setting a finalizer on itself": `{"metadata":{"finalizers":["example.com/f"]}}`,
		"making itself unschedulable":   `{"spec":{"unschedulable":true}}`,
		"taking its own range of pods":  `{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`,
	} {
		for _, subresource := range []string{"", "status"} {
			if subresource == "status" && strings.HasPrefix(patch, `{"spec"`) {
				continue // the status subresource drops it
			}
			_, err := node.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource)
			refused(what+" through "+subresource, err)
		}
	}
	ready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	if _, err := node.CoreV1().Nodes().Patch(ctx, "n1", types.StrategicMergePatchType, ready, metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("a node can't say that it is ready: %v", err)
	}
	_, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = node.CoreV1().Nodes().Patch(ctx, "n2", types.StrategicMergePatchType, ready, metav1.PatchOptions{}, "status")
	refused("speaking for another", err)
}

func publishedSlice(node string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "published", Namespace: "default",
			Labels: map[string]string{discoveryv1.LabelServiceName: "mine", "fairway.dev/node": node},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, NodeName: &node}},
	}
}
