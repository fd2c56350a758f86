package apiserver

import (
	"strings"
	"testing"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gates.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gates, singular: gate, kind: Gate, shortNames: [gt]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns: [{name: Address, type: string, jsonPath: .spec.address}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [address]
            properties:
              address: {type: string, description: Where the gate is.}
              replicas: {type: integer, default: 2, minimum: 0}
              width: {type: integer}
              height: {type: integer}
            x-kubernetes-validations:
            - {rule: "!has(self.width) || !has(self.height) || self.width < self.height", message: a gate is higher than wide}
          status:
            type: object
            properties: {replicas: {type: integer}}
`

const gate = `
apiVersion: example.com/v1
kind: Gate
metadata: {name: north, labels: {app: web}}
spec: {address: 192.0.2.1, width: 2, height: 3}
`

// TestCustomResources goes with kubectl through what a CustomResourceDefinition
// brings.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	s := start(t, c)
	kubectl(t, s, definition, "apply", "-f", "-")
	kubectl(t, s, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/gates.example.com")
	kubectl(t, s, gate, "apply", "-f", "-")
	kubectl(t, s, gate, "apply", "--server-side", "--force-conflicts", "-f", "-")
	matches(t, kubectl(t, s, "", "get", "gt"), "NAME ADDRESS", "north 192.0.2.1")
	matches(t, kubectl(t, s, "", "get", "gates", "-o", "jsonpath={.items[0].spec.replicas}"), "2")
	matches(t, kubectl(t, s, "", "api-resources", "--api-group", "example.com"), "NAME SHORTNAMES APIVERSION NAMESPACED KIND", "gates gt example.com/v1 true Gate")
	matches(t, kubectl(t, s, "", "api-resources", "--api-group", "apiextensions.k8s.io"), "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition")
	eventually(t, "that explain knows the kind", func() bool {
		out, err := tryKubectl(t, s, "", "explain", "gate.spec.address")
		return err == nil && strings.Contains(out, "Where the gate is.")
	})
	contains(t, kubectl(t, s, "", "explain", "crd.spec.group"), "group is the API group")
	contains(t, kubectl(t, s, "", "get", "--raw", "/apis"), `"example.com/v1"`, `"apiextensions.k8s.io/v1"`, `"apps/v1"`)
	contains(t, kubectl(t, s, "", "get", "--raw", "/openapi/v3"), "apis/example.com/v1", "apis/apiextensions.k8s.io/v1", "apis/apps/v1")
	contains(t, kubectl(t, s, "", "get", "--raw", "/openapi/v2"), "com.example.v1.Gate", "io.k8s.api.core.v1.Service")
	kubectl(t, s, "", "scale", "gate/north", "--replicas=5")
	kubectl(t, s, "", "patch", "gate", "north", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":3},"spec":{"address":"no"}}`)
	matches(t, kubectl(t, s, "", "get", "gate", "north", "-o", "jsonpath={.spec.address} {.spec.replicas} {.status.replicas}"), "192.0.2.1 5 3")
	refuses(t, s, strings.Replace(gate, "width: 2", "width: 4", 1), "a gate is higher than wide")
	refuses(t, s, strings.Replace(gate, "width: 2", "replicas: -1", 1), "spec.replicas")
	refuses(t, s, strings.Replace(gate, "width: 2", "depth: 4", 1), `unknown field "spec.depth"`)
	refuses(t, s, strings.Replace(definition, "scope: Namespaced", `scope: Namespaced
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v9], clientConfig: {url: "https://192.0.2.1/"}}}`, 1), "spec.conversion.conversionReviewVersions")

	t.Run("after a restart", func(t *testing.T) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := start(t, c)
		matches(t, kubectl(t, again, "", "get", "gt"), "north 192.0.2.1")
		kubectl(t, again, "", "delete", "crd", "gates.example.com")
		eventually(t, "that the kind is unknown", func() bool {
			out, err := tryKubectl(t, again, "", "get", "gates")
			return err != nil && strings.Contains(out, "doesn't have a resource type")
		})
		if list := kubectl(t, again, "", "get", "--raw", "/apis"); strings.Contains(list, "example.com") {
			t.Errorf("the group is still listed: %s", list)
		}
	})
}

// refuses expects kubectl apply to fail, for a reason.
func refuses(t *testing.T, s *Server, manifest, reason string) {
	t.Helper()
	out, err := tryKubectl(t, s, manifest, "apply", "-f", "-")
	if err == nil || !strings.Contains(out, reason) {
		t.Errorf("applied %s\nwant an error with %q, got %v:\n%s", manifest, reason, err, out)
	}
}
