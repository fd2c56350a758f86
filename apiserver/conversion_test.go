package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const converted = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: doors.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: doors, singular: door, kind: Door}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {url: "%s/convert", caBundle: %s}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {wide: {type: string}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {width: {type: string}}}}
`

// convert answers as conversion webhooks do: what is wide in v1 is the width in v2.
func convert(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Errorf("read review: %v", err)
			return
		}
		answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(raw.Raw); err != nil {
				t.Errorf("read object: %v", err)
				return
			}
			from, to := "wide", "width"
			if review.Request.DesiredAPIVersion == "example.com/v1" {
				from, to = to, from
			}
			object.Object[to] = object.Object[from]
			delete(object.Object, from)
			object.SetAPIVersion(review.Request.DesiredAPIVersion)
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: object})
		}
		review.Request, review.Response = nil, answer
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Errorf("write review: %v", err)
		}
	}
}

// TestConversionWebhook: an object is read in another version as the webhook has it,
// alone and in a list.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	hook := httptest.NewTLSServer(convert(t))
	defer hook.Close()
	s := start(t, testConfig(t))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	kubectl(t, s, fmt.Sprintf(converted, hook.URL, base64.StdEncoding.EncodeToString(ca)), "apply", "-f", "-")
	kubectl(t, s, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/doors.example.com")
	const door = "apiVersion: example.com/v1\nkind: Door\nmetadata: {name: front}\nwide: 90cm\n"
	eventually(t, "that the kind is served", func() bool {
		_, err := tryKubectl(t, s, door, "apply", "-f", "-")
		return err == nil
	})
	for _, version := range []string{"v1", "v2"} {
		field := map[string]string{"v1": "wide", "v2": "width"}[version]
		matches(t, kubectl(t, s, "", "get", "doors."+version+".example.com", "front", "-o", "jsonpath={."+field+"}"), "90cm")
		matches(t, kubectl(t, s, "", "get", "doors."+version+".example.com", "-o", "jsonpath={.items[0]."+field+"}"), "90cm")
	}
}
