package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "sigs.k8s.io/gateway-api/apis/v1" // whose module has the bundles
)

const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-node-ports}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}
  validations:
  - expression: "object.spec.type != 'NodePort'"
    message: node ports are not for this cluster
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-node-ports}
spec: {policyName: no-node-ports, validationActions: [Deny]}
`

// TestAdmissionPolicy: what a bound policy denies is refused with its message,
// until the policy is deleted.
func TestAdmissionPolicy(t *testing.T) {
	t.Parallel()
	s := start(t, testConfig(t))
	kubectl(t, s, policy, "apply", "-f", "-")
	create := []string{"create", "service", "nodeport", "denied", "--tcp=80"}
	eventually(t, "that the policy denies node ports", func() bool {
		out, err := tryKubectl(t, s, "", append(create, "--dry-run=server")...)
		return err != nil && strings.Contains(out, "node ports are not for this cluster")
	})
	kubectl(t, s, "", "create", "service", "clusterip", "allowed", "--tcp=80")
	matches(t, kubectl(t, s, "", "get", "validatingadmissionpolicies"), "NAME VALIDATIONS PARAMKIND AGE", `no-node-ports 1 <unset> \d+s`)
	out, err := tryKubectl(t, s, strings.Replace(policy, "object.spec.type !=", "object.spec.type +", 1), "apply", "-f", "-")
	if err == nil || !strings.Contains(out, "spec.validations[0].expression") {
		t.Errorf("an expression that doesn't compile: %v, %s", err, out)
	}
	kubectl(t, s, "", "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "no-node-ports")
	eventually(t, "that nothing is denied any more", func() bool {
		_, err := tryKubectl(t, s, "", append(create, "--dry-run=server")...)
		return err == nil
	})
}

const mutatingPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [services]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"team": "a"}}}'
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/by"), value: object.metadata.name}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team}
`

// TestMutatingPolicy: a bound policy changes what is created, in both forms of
// patches, until it is deleted.
func TestMutatingPolicy(t *testing.T) {
	t.Parallel()
	s := start(t, testConfig(t))
	kubectl(t, s, mutatingPolicy, "apply", "-f", "-")
	labels := func() string {
		out, err := tryKubectl(t, s, "", "create", "service", "clusterip", "web", "--tcp=80", "--dry-run=server", "-o", "jsonpath={.metadata.labels}")
		if err != nil {
			return err.Error()
		}
		return out
	}
	eventually(t, "that the policy changes Services", func() bool {
		out := labels()
		return strings.Contains(out, `"team":"a"`) && strings.Contains(out, `"example.com/by":"web"`)
	})
	matches(t, kubectl(t, s, "", "get", "mutatingadmissionpolicies"), "NAME MUTATIONS PARAMKIND AGE", `team 2 <unset> \d+s`)
	for field, change := range map[string][2]string{
		"spec.mutations[0].applyConfiguration.expression": {"Object{metadata", "Objct{metadata"},
		"spec.mutations[1].jsonPatch.expression":          {"object.metadata.name", "object.metadata.name +"},
		"spec.mutations[0].jsonPatch":                     {"patchType: ApplyConfiguration", "patchType: JSONPatch"},
		"spec.reinvocationPolicy":                         {"reinvocationPolicy: Never", "reinvocationPolicy: Often"},
	} {
		out, err := tryKubectl(t, s, strings.Replace(mutatingPolicy, change[0], change[1], 1), "apply", "-f", "-")
		if err == nil || !strings.Contains(out, field) {
			t.Errorf("%s: %v, %s", field, err, out)
		}
	}
	kubectl(t, s, "", "delete", "mutatingadmissionpolicybinding,mutatingadmissionpolicy", "team")
	eventually(t, "that nothing is changed any more", func() bool { return !strings.Contains(labels(), "team") })
}

// TestGatewayBundles: Gateway API's definitions and policies apply unchanged.
func TestGatewayBundles(t *testing.T) {
	t.Parallel()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil || strings.TrimSpace(string(dir)) == "" {
		t.Fatalf("find Gateway API's module: %q, %v", dir, err)
	}
	for _, channel := range []string{"standard", "experimental"} {
		folder := filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", channel)
		files, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, testConfig(t))
		args := []string{"apply", "--server-side"}
		for _, f := range files {
			if f.Name() == "kustomization.yaml" {
				continue
			}
			args = append(args, "-f", filepath.Join(folder, f.Name()))
		}
		if len(args) < 20 {
			t.Errorf("%s: few files: %v", channel, args)
		}
		kubectl(t, s, "", args...)
		kubectl(t, s, "", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	}
}
