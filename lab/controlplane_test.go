//go:build kubernetes

package lab_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/test/fakeapi"
)

// recordEnv is a directory for what this version of Kubernetes answers:
// test/fakeapi/recorded.
const recordEnv = "FAIRWAY_RECORD"

// TestControlPlane: what test/fakeapi says of Kubernetes is what Kubernetes
// does.
func TestControlPlane(t *testing.T) {
	c := newCluster(t, kubernetesBinaries(t))
	t.Run("role", c.checkRole)
	t.Run("objects", c.record)
}

// checkRole: the role that the server has bootstrapped allows what
// fakeapi.NodeProxierOf says of its version.
func (c *cluster) checkRole(t *testing.T) {
	role, err := c.client.RbacV1().ClusterRoles().Get(t.Context(), "system:node-proxier", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	allows := func(verb, group, resource string) bool {
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	for _, rule := range fakeapi.NodeProxierOf(c.minor(t)) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !allows(verb, group, resource) {
						t.Errorf("system:node-proxier doesn't allow %s %s.%s", verb, resource, group)
					}
				}
			}
		}
	}
}

// record makes Services of further sorts and, if told where to, writes down what
// the server says of all of them: FAIRWAY_RECORD=$PWD/test/fakeapi/recorded.
func (c *cluster) record(t *testing.T) {
	ctx := t.Context()
	for _, s := range []*corev1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: "headless", Labels: map[string]string{"team": "a"}}, Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "hello"}, PublishNotReadyAddresses: true, Ports: []corev1.ServicePort{{Port: 80}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "outside"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "db", Port: 5432, AppProtocol: ptr.To("postgres")}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "balanced", Annotations: map[string]string{"example.com/pool": "one"}}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "hello"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			LoadBalancerSourceRanges: []string{"198.51.100.0/24"}, LoadBalancerClass: ptr.To("example.com/metal"),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
			SessionAffinity:       corev1.ServiceAffinityClientIP, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
	} {
		if _, err := c.client.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{FieldManager: "kubectl-create"}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := c.client.CoreV1().Services("default").Get(ctx, "balanced", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	if _, err := c.client.CoreV1().Services("default").UpdateStatus(ctx, b, metav1.UpdateOptions{FieldManager: "example-controller"}); err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "outside-1", Labels: map[string]string{discoveryv1.LabelServiceName: "outside"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"172.30.100.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("db"), Port: ptr.To(int32(5432))}}}
	if _, err := c.client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{FieldManager: "kubectl-create"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the load balancer's EndpointSlices are there", func() bool {
		list, err := c.client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=balanced"})
		return err == nil && len(list.Items) > 0 && len(list.Items[0].Endpoints) == 4
	})
	c.openShop(t)
	c.write(t)
}

// write reads all objects as the server gives them.
func (c *cluster) write(t *testing.T) {
	t.Helper()
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	items := []any{}
	for _, r := range []struct {
		client              rest.Interface
		api, kind, resource string
	}{
		{c.client.CoreV1().RESTClient(), "v1", "Node", "nodes"},
		{c.client.CoreV1().RESTClient(), "v1", "Service", "services"},
		{c.client.DiscoveryV1().RESTClient(), "discovery.k8s.io/v1", "EndpointSlice", "endpointslices"},
	} {
		text, err := r.client.Get().Resource(r.resource).SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == 0 {
			t.Fatalf("the server has no %s", r.resource)
		}
		for _, item := range list.Items {
			item["apiVersion"], item["kind"] = r.api, r.kind // as kubectl completes lists' items
			items = append(items, item)
		}
	}
	dir := os.Getenv(recordEnv)
	if dir == "" {
		t.Logf("%d objects, not written, since %s is not set", len(items), recordEnv)
		return
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, version.Major+"."+strings.TrimSuffix(version.Minor, "+")+".yaml")
	head := "# What Kubernetes " + version.GitVersion + " answered: see foreign.recorded for the command.\n"
	if err := os.WriteFile(name, append([]byte(head), text...), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d objects are in %s", len(items), name)
}
