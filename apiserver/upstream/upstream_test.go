package upstream

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kubectlscheme "k8s.io/kubectl/pkg/scheme"
	"sigs.k8s.io/yaml"
)

func defaulted[T any](t *testing.T, manifest string) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), obj); err != nil {
		t.Fatal(err)
	}
	s := runtime.NewScheme()
	if err := RegisterDefaults(s); err != nil {
		t.Fatal(err)
	}
	s.Default(any(obj).(runtime.Object))
	return obj
}

const deploymentManifest = `{metadata: {name: web, namespace: default}, spec: {selector: {matchLabels: {app: a}},
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: web, image: example.com/web}]}}}}`

func fields(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Field)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestRules prepares and validates objects of kinds whose internal form differs from the published one.
func TestRules(t *testing.T) {
	ctx := apirequest.WithNamespace(t.Context(), "default")
	d := defaulted[appsv1.Deployment](t, deploymentManifest)
	if d.Spec.Replicas == nil || *d.Spec.Replicas != 1 || d.Spec.Template.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways {
		t.Errorf("no defaults: %+v", d.Spec)
	}
	d.Status.Replicas = 7
	before := d.DeepCopy()
	Deployments.PrepareForCreate(ctx, d)
	if d.Generation != 1 || d.Status.Replicas != 0 || !equality.Semantic.DeepEqual(d.Spec, before.Spec) {
		t.Errorf("prepared for create: %+v", d)
	}
	if errs := Deployments.Validate(ctx, d); len(errs) > 0 {
		t.Error(errs)
	}

	d.ResourceVersion = "1"
	changed := d.DeepCopy()
	changed.Spec.Selector.MatchLabels["app"] = "b"
	old := d.DeepCopy()
	Deployments.PrepareForUpdate(ctx, changed, d)
	if changed.Generation != 2 || !equality.Semantic.DeepEqual(d, old) {
		t.Errorf("prepared for update: generation %d, the old object is %+v", changed.Generation, d)
	}
	if got, want := fields(Deployments.ValidateUpdate(ctx, changed, d)), []string{"spec.selector", "spec.template.metadata.labels"}; !slices.Equal(got, want) {
		t.Errorf("refused %q, want %q", got, want)
	}

	status := d.DeepCopy()
	status.Spec.Paused, status.Status.Replicas = true, -1
	Deployments.Status().PrepareForUpdate(ctx, status, d)
	if status.Spec.Paused {
		t.Error("a status' update has changed the spec")
	}
	if got := fields(Deployments.Status().ValidateUpdate(ctx, status, d)); !slices.Contains(got, "status.replicas") {
		t.Errorf("refused %q", got)
	}
	if ConfigMaps.Status() != nil || (*Rules)(nil).Status() != nil {
		t.Error("a status of kinds without one")
	}
}

func TestSecretStringData(t *testing.T) {
	s := defaulted[corev1.Secret](t, `{metadata: {name: a, namespace: default}, stringData: {key: text}}`)
	Secrets.PrepareForCreate(t.Context(), s)
	if s.Type != corev1.SecretTypeOpaque || string(s.Data["key"]) != "text" || s.StringData != nil {
		t.Errorf("%+v", s)
	}
}

// TestMarkers holds rules that stand nowhere but in the types' markers.
func TestMarkers(t *testing.T) {
	p := defaulted[networkingv1.NetworkPolicy](t, `{metadata: {name: a, namespace: default}, spec: {podSelector: {}}}`)
	ctx := apirequest.WithRequestInfo(t.Context(), &apirequest.RequestInfo{APIGroup: "networking.k8s.io", APIVersion: "v1", Subresource: "scale"})
	if errs := NetworkPolicies.ValidateDeclaratively(ctx, p, nil, nil, operation.Create); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := NetworkPolicies.ValidateDeclaratively(ctx, p, p.DeepCopy(), nil, operation.Update); len(errs) > 0 {
		t.Error(errs)
	}
	// A request for an object of another group writes it, as an eviction does a budget.
	other := apirequest.WithRequestInfo(t.Context(), &apirequest.RequestInfo{APIVersion: "v1", Subresource: "eviction"})
	if errs := NetworkPolicies.ValidateDeclaratively(other, p, p.DeepCopy(), nil, operation.Update); len(errs) > 0 {
		t.Error(errs)
	}
	// A write that no request asks for.
	if errs := NetworkPolicies.ValidateDeclaratively(t.Context(), p, nil, nil, operation.Create); len(errs) > 0 {
		t.Error(errs)
	}
}

// TestClientsKeepTheirSchemes holds that clients in the same program don't default what they read: kubectl set --local
// would print it.
func TestClientsKeepTheirSchemes(t *testing.T) {
	for name, s := range map[string]*runtime.Scheme{"client-go": clientgoscheme.Scheme, "kubectl": kubectlscheme.Scheme} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		s.Default(d)
		if d.Spec.Replicas != nil {
			t.Errorf("%s fills in %+v", name, d.Spec)
		}
	}
}

func TestServiceUpdate(t *testing.T) {
	old := defaulted[corev1.Service](t, `{metadata: {name: web, namespace: default}, spec: {clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{port: 80}]}}`)
	if errs := Service(old, nil); len(errs) > 0 {
		t.Error(errs)
	}
	s := old.DeepCopy()
	s.ResourceVersion = "1"
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.10", []string{"10.96.0.10"}
	if errs := Service(s, old); len(errs) == 0 || !strings.HasPrefix(errs[0].Field, "spec.clusterIP") {
		t.Errorf("a changed address: %v", errs)
	}
}

// TestPrivileged: containers may be privileged, as those that prepare an agent's node are.
func TestPrivileged(t *testing.T) {
	d := defaulted[appsv1.Deployment](t, strings.Replace(deploymentManifest, "name: web, image", "securityContext: {privileged: true}, name: web, image", 1))
	if errs := Deployments.Validate(apirequest.WithNamespace(t.Context(), "default"), d); len(errs) > 0 {
		t.Error(errs)
	}
}
