package customresources

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	oldManifest = `{"metadata": {"name": "gates.example.com"}, "spec": {"group": "example.com", "scope": "Cluster"}}`
	newManifest = `{"metadata": {"name": "gates.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced"}}`
)

// TestInstall: a definition that we installed follows our manifest; one that
// somebody has changed since doesn't.
func TestInstall(t *testing.T) {
	client := fake.NewClientset()
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	step := func(manifest string, want apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		if err := install(t.Context(), client, []byte(manifest)); err != nil {
			t.Fatal(err)
		}
		crd, err := definitions.Get(t.Context(), "gates.example.com", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Scope != want {
			t.Errorf("scope is %s, want %s", crd.Spec.Scope, want)
		}
		return crd
	}
	// The server counts generations; the fake one doesn't.
	setGeneration := func(crd *apiextensionsv1.CustomResourceDefinition, generation int64) {
		t.Helper()
		crd.Generation = generation
		if _, err := definitions.Update(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	setGeneration(step(oldManifest, apiextensionsv1.ClusterScoped), 1)
	setGeneration(step(newManifest, apiextensionsv1.NamespaceScoped), 2)
	setGeneration(step(newManifest, apiextensionsv1.NamespaceScoped), 3)
	step(oldManifest, apiextensionsv1.NamespaceScoped)
}

// TestBuiltIn: what is embedded can be parsed.
func TestBuiltIn(t *testing.T) {
	if err := installAll(t.Context(), fake.NewClientset()); err != nil {
		t.Error(err)
	}
}
