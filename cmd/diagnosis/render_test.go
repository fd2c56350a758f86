package diagnosis

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const renderManifest = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: web}
subsets:
- addresses: [{ip: 10.244.1.2}]
  ports: [{port: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: unassigned}
spec:
  ports: [{port: 80}]
`

// render runs the command on a manifest and returns what it prints.
func render(t *testing.T, args ...string) (out, warnings string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(renderManifest), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Render()
	c.SilenceUsage, c.SilenceErrors = true, true
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(append([]string{"-f", file}, args...))
	err = c.ExecuteContext(context.Background())
	return stdout.String(), stderr.String(), err
}

// TestRenderNeedsOnlyManifests: each mode's rules name the Service's address and
// its endpoint's, and what can't be rendered is said.
func TestRenderNeedsOnlyManifests(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "ipvs", "userspace"} {
		for _, form := range []string{"--objects=false", "--objects"} {
			out, warnings, err := render(t, "--mode", mode, form)
			if err != nil {
				t.Errorf("%s %s: %v", mode, form, err)
			}
			if !strings.Contains(out, "10.96.0.10") || !strings.Contains(out, "10.244.1.2") {
				t.Errorf("%s %s: the Service is not in it:\n%s", mode, form, out)
			}
			if !strings.Contains(warnings, "service default/unassigned: as an example, cluster IP 10.96.0.1\n") {
				t.Errorf("%s %s: warnings: %q", mode, form, warnings)
			}
		}
	}
}

func TestRenderPrintsOnePart(t *testing.T) {
	out, _, err := render(t, "--mode", "ipvs", "--part", "ipvsadm.restore")
	if err != nil || !strings.Contains(out, "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.1.2:8080") {
		t.Errorf("%v: %q", err, out)
	}
}

// TestRenderExamples: manifests that no cluster has seen yet are shown with
// addresses such as it would give, and these are named.
func TestRenderExamples(t *testing.T) {
	out, notes, err := render(t, "-f", "../../examples/hello.yaml,../../examples/two-ports.yaml", "--mode", "auto", "--table")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.244.0.1:8080", "10.244.0.6:8080", "10.244.0.9:9377", "[fd00:10:244::1]:9376"} {
		if !strings.Contains(out, want) {
			t.Errorf("no endpoint %s in\n%s", want, out)
		}
	}
	if want := "service default/my-service: as an example, cluster IP 10.96.0.5, cluster IP fd00:10:96::1, " +
		"3 endpoints of Deployment my-app (IPv4) and 3 endpoints of Deployment my-app (IPv6)\n"; !strings.Contains(notes, want) {
		t.Errorf("notes:\n%swant %s", notes, want)
	}
}

// TestRenderNamesMistakes: fields that nobody knows and values that can't be are
// named, and everything else is rendered.
func TestRenderNamesMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.yaml")
	manifests := `
apiVersion: v1
kind: Service
metadata: {name: typo}
spec: {clusterIP: 10.96.0.11, prots: [{port: 80}], ports: [{port: 81}]}
---
apiVersion: v1
kind: Service
metadata: {name: wrong, namespace: shop}
spec: {clusterIP: 10.96.0.9999, ports: [{port: 80000}]}
---
apiVersion: v1
kind: Service
metadata: {name: text}
spec: {clusterIP: 10.96.0.12, ports: [{port: "80"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: slice}
addressType: IPv4
endpoints: [{addresses: [10.244.1]}]
`
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	out, says, err := render(t, "-f", file, "--table")
	if err == nil || !strings.Contains(err.Error(), "4 mistakes") {
		t.Errorf("the error is %v", err)
	}
	for _, want := range []string{
		`Service typo: unknown field "spec.prots": it has no effect`,
		`Service shop/wrong: spec.clusterIP: Invalid value: "10.96.0.9999"`,
		"Service shop/wrong: spec.ports[0].port: Invalid value: 80000",
		"Service text: not what its kind says: ", "EndpointSlice slice: endpoints[0].addresses[0]: Invalid value",
	} {
		if !strings.Contains(says, want) {
			t.Errorf("no %q in\n%s", want, says)
		}
	}
	if !strings.Contains(out, "10.96.0.11:81") || !strings.Contains(out, "10.96.0.10:80") {
		t.Errorf("what is right isn't rendered:\n%s", out)
	}
}

func TestRenderRefuses(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--mode nosuch", `--mode: "nosuch" must be one of auto, nftables`},
		{"--mode ipvs --part nosuch", `--part: "nosuch" must be one of `},
		{"--cluster-cidr 10.0.0.0.0/8", `"--cluster-cidr" flag: "10.0.0.0.0/8" is not a CIDR`},
		{"--nodeport-addresses nosuch", `"--nodeport-addresses" flag: `},
		{"--scheduler nosuch", `--scheduler: "nosuch" must be one of `},
		{"--iptables-variant nosuch", `--iptables-variant: "nosuch" must be nft or legacy`},
		{"-f /nonexistent", "/nonexistent"},
	} {
		_, _, err := render(t, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", c.args, err, c.says)
		}
	}
}
