package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const webhookManifest = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: labels}
webhooks:
- name: labels.example.com
  clientConfig: {url: "%[1]s/mutate", caBundle: %[2]s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  matchConditions: [{name: not-left-alone, expression: "object.metadata.name != 'left-alone'"}]
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: denies}
webhooks:
- name: denies.example.com
  clientConfig: {url: "%[1]s/validate", caBundle: %[2]s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
  sideEffects: None
  admissionReviewVersions: [v1]
- name: nobody.example.com
  clientConfig: {service: {namespace: default, name: nobody}}
  failurePolicy: Ignore
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
  sideEffects: None
  admissionReviewVersions: [v1]
- name: absent.example.com
  clientConfig: {service: {namespace: default, name: absent}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [serviceaccounts]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
  sideEffects: None
  admissionReviewVersions: [v1]
`

// review answers as webhooks do: it gives ConfigMaps a label, and denies Secrets.
func review(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var asked admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Errorf("read review: %v", err)
			return
		}
		answer := &admissionv1.AdmissionResponse{UID: asked.Request.UID, Allowed: true}
		if r.URL.Path == "/mutate" {
			kind := admissionv1.PatchTypeJSONPatch
			answer.PatchType, answer.Patch = &kind, []byte(`[{"op": "add", "path": "/metadata/labels", "value": {"hooked": "yes"}}]`)
		} else {
			answer.Allowed, answer.Result = false, &metav1.Status{Message: "no secrets here"}
		}
		asked.Request, asked.Response = nil, answer
		if err := json.NewEncoder(w).Encode(asked); err != nil {
			t.Errorf("write review: %v", err)
		}
	}
}

// TestWebhooks: webhooks change and deny objects; one that can't be reached
// counts as its failure policy says, and what its conditions exclude isn't shown
// to it.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	hook := httptest.NewTLSServer(review(t))
	defer hook.Close()
	s := start(t, testConfig(t))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	manifest := fmt.Sprintf(webhookManifest, hook.URL, base64.StdEncoding.EncodeToString(ca))
	kubectl(t, s, manifest, "apply", "-f", "-")
	eventually(t, "that the webhook denies Secrets", func() bool {
		out, err := tryKubectl(t, s, "", "create", "secret", "generic", "denied", "--dry-run=server")
		return err != nil && strings.Contains(out, `admission webhook "denies.example.com" denied the request: no secrets here`)
	})
	eventually(t, "that an absent webhook that must be asked fails the request", func() bool {
		out, err := tryKubectl(t, s, "", "create", "serviceaccount", "unasked", "--dry-run=server")
		return err != nil && strings.Contains(out, "absent.example.com")
	})
	eventually(t, "that the webhook labels ConfigMaps", func() bool {
		return strings.Contains(kubectl(t, s, "", "create", "configmap", "labelled", "--dry-run=server", "-o", "yaml"), "hooked: \"yes\"")
	})
	if out := kubectl(t, s, "", "create", "configmap", "left-alone", "-o", "yaml"); strings.Contains(out, "hooked") {
		t.Errorf("shown to the webhook although its condition is false:\n%s", out)
	}
	matches(t, kubectl(t, s, "", "get", "validatingwebhookconfigurations"), "NAME WEBHOOKS AGE", `denies 3 \d+s`)
	for bad, field := range map[string]string{
		"sideEffects: None":                        "webhooks[0].sideEffects",
		"name: labels.example.com":                 "webhooks[0].name",
		"object.metadata.name != 'left-alone'":     "webhooks[0].matchConditions[0].expression",
		"admissionReviewVersions: [v1]":            "webhooks[0].admissionReviewVersions",
		"url: \"" + hook.URL + "/mutate\"":         "webhooks[0].clientConfig.url",
		"operations: [CREATE], resources: [config": "webhooks[0].rules[0].operations[0]",
	} {
		replacement := map[string]string{
			"sideEffects: None": "sideEffects: Some", "name: labels.example.com": "name: labels", "object.metadata.name != 'left-alone'": "object +",
			"admissionReviewVersions: [v1]": "admissionReviewVersions: [v9]", "operations: [CREATE], resources: [config": "operations: [MAKE], resources: [config",
		}[bad]
		if replacement == "" {
			replacement = "url: http://127.0.0.1/"
		}
		out, err := tryKubectl(t, s, strings.Replace(manifest, bad, replacement, 1), "apply", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(out, field) {
			t.Errorf("%s: %v, %s; want an error of %s", replacement, err, out, field)
		}
	}
	kubectl(t, s, "", "delete", "validatingwebhookconfiguration", "denies")
	eventually(t, "that nothing is denied any more", func() bool {
		_, err := tryKubectl(t, s, "", "create", "secret", "generic", "allowed", "--dry-run=server")
		return err == nil
	})
}

// TestEndpointResolver: a webhook's Service is reached at a ready endpoint, in
// either address family.
func TestEndpointResolver(t *testing.T) {
	name, port, no := "https", int32(9443), false
	for _, address := range []string{"10.1.0.7", "fd00::7"} {
		resolver := endpointResolver{fake.NewClientset(
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hook"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: name, Port: 443, Protocol: corev1.ProtocolTCP}}},
			},
			&discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hook-1", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
				Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
				Endpoints: []discoveryv1.Endpoint{
					{Addresses: []string{"10.1.0.8"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}, {Addresses: []string{address}},
				},
			})}
		u, err := resolver.ResolveEndpoint("default", "hook", 443)
		if err != nil || u.Hostname() != address || u.Port() != "9443" {
			t.Errorf("resolved to %v, %v; want %s", u, err, address)
		}
		for _, c := range []struct {
			name string
			port int32
		}{{"hook", 80}, {"absent", 443}} {
			if u, err := resolver.ResolveEndpoint("default", c.name, c.port); err == nil {
				t.Errorf("port %d of %s resolved to %v", c.port, c.name, u)
			}
		}
	}
}
