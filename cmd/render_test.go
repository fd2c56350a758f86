package cmd

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
	c := renderCommand()
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
			if !strings.Contains(warnings, "service default/unassigned: spec.clusterIP is not set") {
				t.Errorf("%s %s: warnings: %q", mode, form, warnings)
			}
		}
	}
}

func TestRenderPrintsOnePart(t *testing.T) {
	out, _, err := render(t, "--mode", "ipvs", "--part", "ipvsadm.restore")
	if err != nil || !strings.HasPrefix(out, "-A -t 10.96.0.10:80 -s rr\n") {
		t.Errorf("%v: %q", err, out)
	}
}

func TestRenderRefuses(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--mode nosuch", `--mode: "nosuch" must be one of auto, nftables`},
		{"--mode ipvs --part nosuch", `--part: "nosuch" must be one of `},
		{"--cluster-cidr 10.0.0.0.0/8", `--cluster-cidr: "10.0.0.0.0/8" is not a CIDR`},
		{"--nodeport-addresses nosuch", `--nodeport-addresses: `},
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
