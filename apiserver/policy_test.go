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
