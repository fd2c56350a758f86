package requests

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/cmd/diagnosis"
	"github.com/fairway-net/fairway/cmd/exit"

	"github.com/spf13/cobra"
)

const oneIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop, annotations: {nginx.ingress.kubernetes.io/rewrite-target: /, nginx.ingress.kubernetes.io/upstream-hash-by-subset: 'true'}}
spec:
  ingressClassName: nginx
  tls: [{hosts: [shop.example.com], secretName: cert}]
  rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
`

// ingressRun runs a command on a manifest.
func ingressRun(t *testing.T, c *cobra.Command, manifest string, args ...string) (out, warnings string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	c.SetOut(&o)
	c.SetErr(&e)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append(args, "-f", file))
	err := c.Execute()
	var exit exit.Error
	if errors.As(err, &exit) {
		code = exit.Code
	} else if err != nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), code
}

// TestAssessConvertExplain: an Ingress is assessed and converted from files alone, what is
// lost makes the exit code, and explain understands what came out.
func TestAssessConvertExplain(t *testing.T) {
	out, _, code := ingressRun(t, Ingress(), oneIngress, "assess")
	if code != 1 || !strings.Contains(out, " 83  Ingress shop/web\n       works      rewrite-target\n       otherwise  annotation nginx.ingress.kubernetes.io/upstream-hash-by-subset") {
		t.Errorf("assess: %d\n%s", code, out)
	}
	routes, warnings, code := ingressRun(t, Ingress(), oneIngress, "convert")
	if code != 1 || !strings.Contains(warnings, "upstream-hash-by-subset") {
		t.Errorf("convert: %d\n%s", code, warnings)
	}
	out, _, code = ingressRun(t, diagnosis.Explain(), routes, "https://shop.example.com/x")
	if code != 0 || !strings.Contains(out, "taken as given, since no manifest has them: GatewayClass fairway, Secret shop/cert, Service shop/web") || !strings.Contains(out, "HTTPRoute shop/web") {
		t.Errorf("explain: %d\n%s", code, out)
	}
	out, _, _ = ingressRun(t, diagnosis.Explain(), oneIngress, "https://shop.example.com/x")
	if !strings.Contains(out, "Ingress shop/web owns the host") {
		t.Errorf("explain of the Ingress:\n%s", out)
	}
}
