//go:build !race

// The API server and etcd under the race detector take long to build and to run.

package proposal

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/diagnose/change"
)

// running starts an API server in which a Service web with one endpoint runs, and an Ingress.
func running(t *testing.T) *rest.Config {
	t.Helper()
	config := apiserver.DefaultConfig()
	config.DataDir, config.Port = t.TempDir(), 0
	config.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	server, err := apiserver.Start(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close API server: %v", err)
		}
	})
	client, err := kubernetes.NewForConfig(server.LoopbackConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"app": "web"}
	must(client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.10", Selector: labels, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{}))
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	must(client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{}))
	pod, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: labels}, Spec: template.Spec}, metav1.CreateOptions{})
	must(pod, err)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.1.2", PodIPs: []corev1.PodIP{{IP: "10.244.1.2"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	must(client.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
	must(client.DiscoveryV1().EndpointSlices("default").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: sliceController}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}}},
	}, metav1.CreateOptions{}))
	must(client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "discovery.k8s.io", "apps"}, Resources: []string{"services", "endpointslices", "pods", "nodes", "namespaces", "deployments"}, Verbs: []string{"get", "list"}},
	}}, metav1.CreateOptions{}))
	must(client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "reader"}},
	}, metav1.CreateOptions{}))
	return server.LoopbackConfig()
}

// compared is what a manifest does.
func compared(t *testing.T, config *rest.Config, manifests string) (*change.Report, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Read(t.Context(), config, []string{file}, "default")
	if err != nil {
		t.Fatal(err)
	}
	r, err := change.Compare(t.Context(), change.Input{Before: p.Before, After: p.After, Addresses: p.Addresses, Ports: p.Ports})
	if err != nil {
		t.Fatal(err)
	}
	r.Refused, r.NotChecked = p.Refused, p.NotChecked
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return r, text.String()
}

const same = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`

var proposals = map[string]struct {
	manifests string
	has       []string
	hasNot    []string
}{
	"none": {same, []string{"no packet and no request goes elsewhere"}, []string{"~", "Service default/web"}},
	"selector of nothing": {
		strings.Replace(same, "app: web", "app: webb", 1),
		[]string{"~ 10.96.0.10:80/tcp: REFUSED: no endpoint takes connections; it was FORWARDED to its only endpoint", "- endpoint 10.244.1.2:8080 (web-1) of default/web:http: takes no new connections", "! FW101 proved: selector app=webb matches no pod"}, nil,
	},
	"a port more, and affinity": {
		strings.Replace(same, "spec: {", "spec: {sessionAffinity: ClientIP, ", 1) + "  \n",
		[]string{"stays for 3h0m0s"}, []string{"REFUSED"},
	},
	"new Service of both families": {
		"apiVersion: v1\nkind: Service\nmetadata: {name: second}\nspec: {type: NodePort, ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 81, targetPort: 8080}]}\n",
		[]string{"Service default/second", "+ a new cluster IP:81/tcp: FORWARDED to its only endpoint", "node port (the server's choice, for 81)/tcp", "+ endpoint 10.244.1.2:8080 (web-1) of default/second"},
		[]string{"10.96.", "198.18.", "6000"},
	},
	"refused": {
		"# first\n---\n" + strings.Replace(strings.Replace(same, "port: 80", "port: 70000", 1), "name: web", "name: bad", 1),
		[]string{"Service default/bad (", "m.yaml:3)", "REFUSED: spec.ports[0].port"}, nil,
	},
	"unread": {"not: [yaml\n", []string{"file ", "REFUSED: "}, nil},
	"rollout": {
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: next}]}}}\n",
		[]string{"+ endpoint new pod 1 of Deployment web, port 8080", "+ endpoint new pod 2 of Deployment web", "- endpoint 10.244.1.2:8080 (web-1)"}, []string{"198.18"},
	},
	"address of another": {
		"apiVersion: v1\nkind: Service\nmetadata: {name: thief}\nspec: {clusterIP: 10.96.0.10, selector: {app: web}, ports: [{port: 80}]}\n",
		[]string{"Service default/thief (", "REFUSED: spec.clusterIP"}, nil,
	},
	"Ingress": {
		"apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: fw}\nspec: {controller: fairway.dev/ingress}\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop}\nspec: {ingressClassName: fw, rules: [{host: shop.example.com, http: {paths: [{path: /cart, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}\n",
		[]string{"Gateway kube-system/ingress", "+ http, shop.example.com, below /cart: Ingress default/shop"}, nil,
	},
	"in a namespace that is made": {
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: next}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: next}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n",
		[]string{"Service next/web", "FW101"}, []string{"REFUSED: namespaces"},
	},
}

// TestProposals: what manifests do to an API server's Services, said before they are applied. It
// changes nothing, so all cases have the same server.
func TestProposals(t *testing.T) {
	config := running(t)
	for name, c := range proposals {
		t.Run(name, func(t *testing.T) {
			_, text := compared(t, config, c.manifests)
			for _, part := range c.has {
				if !strings.Contains(text, part) {
					t.Errorf("the report lacks %q:\n%s", part, text)
				}
			}
			for _, part := range c.hasNot {
				if strings.Contains(text, part) {
					t.Errorf("the report has %q:\n%s", part, text)
				}
			}
		})
	}
	t.Run("few rights", func(t *testing.T) {
		few := rest.CopyConfig(config)
		few.Impersonate.UserName = "reader"
		_, text := compared(t, few, strings.Replace(same, "app: web", "app: webb", 1))
		for _, part := range []string{"FW101 proved", "this account may not write", "ingresses: "} {
			if !strings.Contains(text, part) {
				t.Errorf("the report lacks %q:\n%s", part, text)
			}
		}
	})
}
