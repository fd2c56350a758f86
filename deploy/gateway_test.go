package deploy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/fairway-net/fairway/controller"
	controllergateway "github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/ingress/gateway"
)

// TestGatewayManifests: engines and controllers run without root, without
// capabilities, and can be replaced by one that runs beside them.
func TestGatewayManifests(t *testing.T) {
	objects := build(t, "gateway")
	engine, controllers := find[appsv1.DaemonSet](objects, "engine"), find[appsv1.Deployment](objects, "controller")
	if engine == nil || controllers == nil {
		t.Fatal("no engine or no controller")
	}
	for _, pod := range []corev1.PodTemplateSpec{engine.Spec.Template, controllers.Spec.Template} {
		c := pod.Spec.Containers[0]
		checkMounts(t, objects, &pod.Spec)
		if find[corev1.ServiceAccount](objects, pod.Spec.ServiceAccountName) == nil {
			t.Errorf("there is no account %s", pod.Spec.ServiceAccountName)
		}
		if s := pod.Spec.SecurityContext; !ptr.Deref(s.RunAsNonRoot, false) || ptr.Deref(s.RunAsUser, 0) == 0 {
			t.Errorf("%s may be root", c.Name)
		}
		if s := c.SecurityContext; ptr.Deref(s.AllowPrivilegeEscalation, true) || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil {
			t.Errorf("%s has %v", c.Name, s)
		}
		if len(c.Ports) > 0 {
			t.Errorf("%s names ports: with the node's network, no two such pods run on a node", c.Name)
		}
	}
	if u := engine.Spec.UpdateStrategy.RollingUpdate; !engine.Spec.Template.Spec.HostNetwork || u.MaxSurge.IntValue() != 1 || u.MaxUnavailable.IntValue() != 0 {
		t.Errorf("engines are replaced by %v", u)
	}
	for _, o := range objects {
		for _, rule := range rulesOf(o) {
			if (slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "configmaps")) && len(rule.ResourceNames) == 0 &&
				(slices.Contains(rule.Verbs, "list") || slices.Contains(rule.Verbs, "watch")) {
				t.Errorf("a rule lists every Secret or ConfigMap: %v", rule)
			}
			if slices.Contains(append(append(rule.Verbs, rule.Resources...), rule.APIGroups...), "*") {
				t.Errorf("a rule allows everything: %v", rule)
			}
		}
	}
}

func rulesOf(o any) []rbacv1.PolicyRule {
	switch o := o.(type) {
	case *rbacv1.ClusterRole:
		return o.Rules
	case *rbacv1.Role:
		return o.Rules
	}
	return nil
}

// used are the rights that somebody used, and those that were missing.
type used struct {
	http.RoundTripper
	mu      sync.Mutex
	refused []string
}

func (u *used) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := u.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusForbidden {
		u.mu.Lock()
		defer u.mu.Unlock()
		// One object of a name may be asked to be watched: engines then ask again and again.
		if !strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=") {
			u.refused = append(u.refused, r.Method+" "+r.URL.Path)
		}
	}
	return response, err
}

// as is an account's way to the API; the account is NAMESPACE:NAME.
func as(api *rest.Config, account string) (*rest.Config, *used) {
	u := &used{}
	config := rest.CopyConfig(api)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { u.RoundTripper = next; return u })
	return config, u
}

// testGatewayRights: with the rights of the manifests, a Gateway gets its address
// and status, and requests their answers. Nobody asks for more.
func testGatewayRights(t *testing.T, api *rest.Config) {
	ctx := t.Context()
	core := kubernetes.NewForConfigOrDie(api)
	custom := rest.CopyConfig(api)
	custom.ContentType, custom.AcceptContentTypes = "application/json", "application/json"
	gateways := versioned.NewForConfigOrDie(custom)
	create(ctx, t, core, build(t, "gateway"))
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(core.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}},
	}, metav1.CreateOptions{}))
	engineAPI, engineRights := as(api, "fairway-gateway:engine")
	controllerAPI, controllerRights := as(api, "fairway-gateway:controller")
	running, stop := context.WithCancel(ctx)
	var threads sync.WaitGroup
	t.Cleanup(func() { stop(); threads.Wait() })
	quiet := slog.New(slog.DiscardHandler)
	threads.Go(func() {
		err := controller.RunGateways(running, controllerAPI, controller.Options{
			Lease: &controller.Lease{Namespace: "fairway-gateway", Name: "fairway-gateway-controller", Identity: "test"}, Logger: quiet,
			Gateway: controllergateway.Options{Classes: true, Namespace: "fairway-gateway", NodeAddresses: true},
		})
		if err != nil {
			t.Error(err)
		}
	})
	threads.Go(func() {
		if err := gateway.Run(running, gateway.Config{API: engineAPI, Node: "node", Namespace: "fairway-gateway", Logger: quiet}); err != nil {
			t.Error(err)
		}
	})
	must(core.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "cert"}, Type: corev1.SecretTypeTLS, Data: selfSigned(t),
	}, metav1.CreateOptions{}))
	must(gateways.GatewayV1().Gateways("default").Create(ctx, &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gw"},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{
			{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType},
			{Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, TLS: &gatewayv1.ListenerTLSConfig{
				CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "cert"}},
			}},
		}},
	}, metav1.CreateOptions{}))
	must(gateways.GatewayV1().HTTPRoutes("default").Create(ctx, &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gw"}}},
			Rules: []gatewayv1.HTTPRouteRule{{
				Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Value: ptr.To("/old")}}},
				Filters: []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{
					Hostname: ptr.To(gatewayv1.PreciseHostname("new.example")),
				}}},
			}},
		},
	}, metav1.CreateOptions{}))
	var said string
	for late := range wait.Tries(2 * time.Minute) {
		if said = gatewayState(ctx, core, gateways); said == "" {
			break
		}
		if late {
			t.Errorf("the Gateway doesn't come to serve: %s", said)
			break
		}
	}
	must(nil, gateways.GatewayV1().Gateways("default").Delete(ctx, "gw", metav1.DeleteOptions{}))
	stop()
	threads.Wait()
	for account, u := range map[string]*used{"engine": engineRights, "controller": controllerRights} {
		if len(u.refused) > 0 {
			t.Errorf("the account %s was refused %s", account, strings.Join(slices.Compact(u.refused), ", "))
		}
	}
}

// selfSigned is a certificate as a Secret has it.
func selfSigned(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"web.example"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
	}
}

// gatewayState says what is missing until a request is answered.
func gatewayState(ctx context.Context, core kubernetes.Interface, gateways versioned.Interface) string {
	g, err := gateways.GatewayV1().Gateways("default").Get(ctx, "gw", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if !meta.IsStatusConditionTrue(g.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed)) {
		return fmt.Sprint("conditions ", g.Status.Conditions)
	}
	for _, l := range g.Status.Listeners {
		if !meta.IsStatusConditionTrue(l.Conditions, string(gatewayv1.ListenerConditionResolvedRefs)) {
			return fmt.Sprint("listener ", l.Name, ": conditions ", l.Conditions)
		}
	}
	s, err := core.CoreV1().Services("default").Get(ctx, "gw-fairway", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/old", s.Spec.Ports[0].TargetPort.IntValue()), nil)
	if err != nil {
		return err.Error()
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(q)
	if err != nil {
		return err.Error()
	}
	_ = response.Body.Close() // there is none
	if response.StatusCode != http.StatusFound {
		return response.Status
	}
	return ""
}

// create makes the objects that the API server has.
func create(ctx context.Context, t *testing.T, core kubernetes.Interface, objects []runtime.Object) {
	t.Helper()
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Namespace:
			_, err = core.CoreV1().Namespaces().Create(ctx, o, strict)
		case *corev1.ServiceAccount:
			_, err = core.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, strict)
		case *rbacv1.ClusterRole:
			_, err = core.RbacV1().ClusterRoles().Create(ctx, o, strict)
		case *rbacv1.ClusterRoleBinding:
			_, err = core.RbacV1().ClusterRoleBindings().Create(ctx, o, strict)
		case *rbacv1.Role:
			_, err = core.RbacV1().Roles(o.Namespace).Create(ctx, o, strict)
		case *rbacv1.RoleBinding:
			_, err = core.RbacV1().RoleBindings(o.Namespace).Create(ctx, o, strict)
		case *appsv1.DaemonSet:
			_, err = core.AppsV1().DaemonSets(o.Namespace).Create(ctx, o, strict)
		case *appsv1.Deployment:
			_, err = core.AppsV1().Deployments(o.Namespace).Create(ctx, o, strict)
		default:
			t.Errorf("a %T is applied too", o)
		}
		if err != nil {
			t.Fatalf("create %T: %v", o, err)
		}
	}
}
