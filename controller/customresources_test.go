//go:build !race

package controller_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

var gates = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gates"}

// testCustomResources: a kind that comes while the controllers run is theirs to
// collect and to empty namespaces of, like any other.
func testCustomResources(r *rig) {
	ctx := context.Background()
	r.expectCollected("v1", "ConfigMap") // from now on the collector knows which kinds there are
	r.defineGates()
	client, err := dynamic.NewForConfig(r.config)
	if err != nil {
		r.Fatal(err)
	}
	var uid types.UID
	r.eventually("the kind is served", func(ctx context.Context) error {
		made, err := client.Resource(gates).Namespace(r.ns).Create(ctx, newGate("owner"), metav1.CreateOptions{})
		if err == nil {
			uid = made.GetUID()
		}
		return err
	})
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "Gate", Name: "owner", UID: uid},
	}}}
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().ConfigMaps(r.ns).Create(ctx, owned, metav1.CreateOptions{})
	})
	if err := client.Resource(gates).Namespace(r.ns).Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.eventually("what the custom object owned is gone", func(ctx context.Context) error {
		_, err := r.client.CoreV1().ConfigMaps(r.ns).Get(ctx, "owned", metav1.GetOptions{})
		return gone(err)
	})
	r.expectCollected("example.com/v1", "Gate")
	if _, err := client.Resource(gates).Namespace(r.ns).Create(ctx, newGate("left"), metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	if err := r.client.CoreV1().Namespaces().Delete(ctx, r.ns, metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.eventually("the namespace with a custom object is gone", func(ctx context.Context) error {
		_, err := r.client.CoreV1().Namespaces().Get(ctx, r.ns, metav1.GetOptions{})
		return gone(err)
	})
	r.eventually("no custom object is left", func(ctx context.Context) error {
		list, err := client.Resource(gates).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are", len(list.Items))
		}
		return err
	})
}

// expectCollected: what an object owned that isn't there goes.
func (r *rig) expectCollected(version, kind string) {
	r.Helper()
	configs := r.client.CoreV1().ConfigMaps(r.ns)
	r.do(func() (metav1.Object, error) {
		return configs.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orphan", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: version, Kind: kind, Name: "nobody", UID: types.UID("of-nobody-" + kind)},
		}}}, metav1.CreateOptions{})
	})
	r.eventually("what an absent "+kind+" owned is gone", func(ctx context.Context) error {
		_, err := configs.Get(ctx, "orphan", metav1.GetOptions{})
		return gone(err)
	})
}

func newGate(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gate", "metadata": map[string]any{"name": name},
	}}
}

func (r *rig) defineGates() {
	r.Helper()
	client, err := clientset.NewForConfig(r.config)
	if err != nil {
		r.Fatal(err)
	}
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Create(context.Background(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gates.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gates", Singular: "gate", Kind: "Gate"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
}
