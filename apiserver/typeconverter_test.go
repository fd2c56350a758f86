package apiserver

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	genericopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/fairway-net/fairway/apiserver/openapi"
	"github.com/fairway-net/fairway/apiserver/scheme"
)

// stored are objects with lists of every sort: of sets, of maps by key, one
// with a key left out, one with an element twice.
func stored() []runtime.Object {
	service := stageService(1)
	service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "udp", Port: 80, Protocol: corev1.ProtocolUDP}, corev1.ServicePort{Name: "again", Port: 80})
	service.Finalizers = []string{"a.example/b", "a.example/b"}
	service.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"}}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers:       []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 80}}, Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}}},
			ImagePullSecrets: []corev1.LocalObjectReference{{}, {Name: "s"}},
			Tolerations:      []corev1.Toleration{{Key: "k"}},
		},
	}
	replicas := int32(3)
	return []runtime.Object{
		service, stageSlice(1),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: template.Spec},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: template}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"b": {1}}},
		&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &intstr.IntOrString{Type: intstr.String, StrVal: "web"}}}}}}},
	}
}

// openTypes returns the types that a server has, and how it types the stored
// objects.
func openTypes(t testing.TB) (*scheme.Scheme, *typeConverter) {
	t.Helper()
	types, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	namer := genericopenapi.NewDefinitionNamer(types.External)
	converter, err := newTypeConverter(genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer), stored())
	if err != nil {
		t.Fatal(err)
	}
	return types, converter
}

// TestTypeConverter compares what becomes of objects with and without being
// checked against their schemas: the same fields are theirs.
func TestTypeConverter(t *testing.T) {
	types, converter := openTypes(t)
	for _, object := range stored() {
		kinds, _, err := types.External.ObjectKinds(object)
		if err != nil {
			t.Fatal(err)
		}
		kind := kinds[0]
		object.GetObjectKind().SetGroupVersionKind(kind)
		empty, err := types.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		empty.GetObjectKind().SetGroupVersionKind(kind)
		for _, pair := range [][2]runtime.Object{{empty, object}, {object, empty}} {
			var got [2]string
			for n, convert := range []func(runtime.Object, ...typed.ValidationOptions) (*typed.TypedValue, error){converter.TypeConverter.ObjectToTyped, converter.ObjectToTyped} {
				var values [2]*typed.TypedValue
				for i := range pair {
					if values[i], err = convert(pair[i], typed.AllowDuplicates); err != nil {
						t.Fatalf("%s: %v", kind, err)
					}
				}
				comparison, err := values[0].Compare(values[1])
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				got[n] = comparison.String()
			}
			if got[0] != got[1] || got[0] == "" {
				t.Errorf("%s: unchecked the comparison is\n%s\nchecked it is\n%s", kind, got[1], got[0])
			}
		}
	}
	// What users send is still checked.
	patch := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"nonsense": "x"}}}
	if _, err := converter.ObjectToTyped(patch); err == nil {
		t.Error("a field that isn't in the schema was taken")
	}
	if _, err := converter.ObjectToTyped(patch, typed.AllowDuplicates); err == nil {
		t.Error("a field that isn't in the schema was taken")
	}
}

// BenchmarkManagedFields finds out whose fields a new Service's are.
func BenchmarkManagedFields(b *testing.B) {
	types, converter := openTypes(b)
	kind := corev1.SchemeGroupVersion.WithKind("Service")
	for _, way := range []struct {
		name      string
		converter managedfields.TypeConverter
	}{{"checked", converter.TypeConverter}, {"unchecked", converter}} {
		b.Run(way.name, func(b *testing.B) {
			manager, err := managedfields.NewDefaultFieldManager(way.converter, runtime.UnsafeObjectConvertor(types.Scheme), types, types, kind, kind.GroupVersion(), "", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := manager.Update(&corev1.Service{}, stageService(1), "benchmark"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
