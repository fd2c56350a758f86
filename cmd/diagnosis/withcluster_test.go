package diagnosis

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/cmd/exit"
)

// runningCluster starts an API server with a Service web of one endpoint, a Service dead without
// any, and an IngressClass fw. It returns a kubeconfig.
func runningCluster(t *testing.T) string {
	t.Helper()
	config := apiserver.DefaultConfig()
	config.DataDir, config.Port = t.TempDir(), 0
	config.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
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
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, ip := range map[string]string{"web": "10.96.0.10", "dead": "10.96.0.11"} {
		must(client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
			ClusterIP: ip, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		}}, metav1.CreateOptions{}))
	}
	pod, err := client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	must(pod, err)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.244.1.2", PodIPs: []corev1.PodIP{{IP: "10.244.1.2"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	must(client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))
	must(client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](80), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}}},
	}, metav1.CreateOptions{}))
	must(client.NetworkingV1().IngressClasses().Create(t.Context(), &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fw"}, Spec: networkingv1.IngressClassSpec{Controller: "fairway.dev/ingress"},
	}, metav1.CreateOptions{}))
	return filepath.Join(config.DataDir, "admin.kubeconfig")
}

const (
	webSame  = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{name: http, port: 80}]}\n"
	webShops = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: shop}\nspec: {ingressClassName: fw, rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}\n"
)

// TestWithCluster: doctor and explain judge manifests joined with what runs: what they refer to is
// there, what was wrong before doesn't count, and what the server would refuse does.
func TestWithCluster(t *testing.T) {
	kubeconfig := runningCluster(t)
	for name, c := range map[string]struct {
		command   func() *cobra.Command
		args      []string
		manifests string
		code      int
		has       []string
		hasNot    []string
	}{
		"doctor nothing new": {Doctor, nil, webSame, 0, []string{"looked at as they would be", "0 problems"}, []string{"FW101"}},
		"doctor a selector of nothing": {Doctor, nil, strings.Replace(webSame, "app: web", "app: webb", 1), 1,
			[]string{"default/web  FW101  proved"}, []string{"default/dead", "Next:"}},
		"doctor refused": {Doctor, nil, strings.Replace(webSame, "port: 80", "port: 80000", 1), 1,
			[]string{"Service default/web", "FW135", "spec.ports[0].port"}, nil},
		"doctor a class with a typo": {Doctor, nil, strings.Replace(webShops, "ingressClassName: fw", "ingressClassName: wf", 1), 1,
			[]string{"Ingress default/shop  FW132", `no class "wf"`, `did you mean "fw"`}, nil},
		"doctor a class that runs": {Doctor, nil, webShops, 0, []string{"0 problems"}, nil},
		"doctor of one Service":    {Doctor, []string{"svc/web"}, strings.Replace(webSame, "app: web", "app: webb", 1), 1, []string{"FW101"}, nil},
		"doctor as SARIF": {Doctor, []string{"-o", "sarif"}, strings.Replace(webSame, "port: 80", "port: 80000", 1), 1,
			[]string{`"ruleId": "FW135"`, `"startLine": 1`, "m.yaml"}, nil},
		"doctor as JUnit": {Doctor, []string{"-o", "junit"}, webSame, 0, []string{`failures="0"`}, []string{"<failure"}},
		"explain":         {Explain, []string{"svc/web"}, strings.Replace(webSame, "name: http, port: 80", "name: other, port: 81", 1), 0, []string{"10.96.0.10:81", "10.244.1.2"}, nil},
		"explain refused": {Explain, []string{"svc/web"}, strings.Replace(webSame, "port: 80", "port: 80000", 1), 0,
			[]string{"left out: Service default/web: REFUSED: spec.ports[0].port", "10.96.0.10:80"}, nil},
		"explain of a request":  {Explain, []string{"http://shop.example.com/cart"}, webShops, 0, []string{"default/shop", "10.244.1.2"}, nil},
		"explain without files": {Explain, []string{"svc/web"}, "", 2, []string{"--with-cluster: name the manifests with --filename"}, nil},
		"diff nothing new":      {Diff, nil, webSame, 0, []string{"no packet and no request goes elsewhere"}, nil},
		"diff another selector": {Diff, nil, strings.Replace(webSame, "app: web", "app: webb", 1), 1, []string{"FW101"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			command := c.command()
			args := append(c.args, "--kubeconfig", kubeconfig)
			if command.Flags().Lookup("with-cluster") != nil {
				args = append(args, "--with-cluster")
			}
			if c.manifests != "" {
				file := filepath.Join(t.TempDir(), "m.yaml")
				if err := os.WriteFile(file, []byte(c.manifests), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "-f", file)
			}
			var out bytes.Buffer
			command.SetOut(&out)
			command.SetErr(&out)
			command.SetArgs(args)
			command.SilenceUsage, command.SilenceErrors = true, true
			err := command.ExecuteContext(t.Context())
			text := out.String()
			var code exit.Error
			if errors.As(err, &code); code.Code != c.code || err != nil && code.Code == 0 {
				t.Errorf("exit code %d (%v), want %d", code.Code, err, c.code)
			}
			if err != nil {
				text += err.Error()
			}
			for _, part := range c.has {
				if !strings.Contains(text, part) {
					t.Errorf("it lacks %q:\n%s", part, text)
				}
			}
			for _, part := range c.hasNot {
				if strings.Contains(text, part) {
					t.Errorf("it has %q:\n%s", part, text)
				}
			}
		})
	}
}
