package diagnosis

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const l7Manifest = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: fairway}
spec: {controllerName: fairway.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: fairway
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart}
spec:
  parentRefs: [{name: web}]
  hostnames: [shop.example.com]
  rules:
  - matches: [{path: {type: Exact, value: /cart}, method: POST}]
    backendRefs: [{name: cart, port: 80, weight: 3}, {name: gone, port: 80}]
  - backendRefs: [{name: cart, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: cart}
spec: {clusterIP: None, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-x, labels: {kubernetes.io/service-name: cart, service.kubernetes.io/headless: ""}}
addressType: IPv6
ports: [{name: "", port: 8080, protocol: TCP}]
endpoints: [{addresses: ["2001:db8::7"]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
`

// l7Run runs a command on the manifest.
func l7Run(t *testing.T, c *cobra.Command, args ...string) (out, warnings string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "l7.yaml")
	if err := os.WriteFile(file, []byte(l7Manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(append([]string{"-f", file}, args...))
	err = c.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// TestExplainRequest: which rule takes a request, why not the others, who answers.
func TestExplainRequest(t *testing.T) {
	out, _, err := l7Run(t, Explain(), "http://Shop.example.com/cart")
	want := `GET /cart at port 80, host shop.example.com

Gateway default/web:80
  listener  default/web/http, hostname ""
  not       HTTPRoute default/cart rule 0 (POST exactly /cart): the method is GET
  rule      HTTPRoute default/cart rule 1 (below /)
  backend   100%: pool default/cart:80 http/1.1 [2001:db8::7]:8080
`
	if err != nil || out != want {
		t.Errorf("%v, got\n%swant\n%s", err, out, want)
	}
	out, _, err = l7Run(t, Explain(), "http://192.0.2.1/cart", "-X", "post", "-H", "host: shop.example.com")
	if err != nil || !strings.Contains(out, "backend   75%: pool default/cart:80") || !strings.Contains(out, "backend   25%: answers 500: spec.rules[0].backendRefs[1]: there is no Service default/gone") {
		t.Errorf("%v, got\n%s", err, out)
	}
	for _, url := range []string{"http://other.example.com/", "https://shop.example.com/"} {
		if out, _, err := l7Run(t, Explain(), url); err == nil {
			t.Errorf("%s: no error, got\n%s", url, out)
		}
	}
	if _, _, err := l7Run(t, Explain(), "http://shop.example.com/", "-H", "nothing"); err == nil || !strings.Contains(err.Error(), "--header") {
		t.Errorf("a header without a value: %v", err)
	}
}

// TestExplainRequestAsItIsRead: rules see the path's normal form and no headers that only
// a proxy may write, and explain says so.
func TestExplainRequestAsItIsRead(t *testing.T) {
	out, _, err := l7Run(t, Explain(), "http://shop.example.com//x/../c%61rt", "-X", "POST", "-H", "X-Real-IP: 192.0.2.1", "-H", "Accept: a/b")
	want := `POST /cart at port 80, host shop.example.com
  the path //x/../c%61rt is read as /cart
  the header X-Real-Ip doesn't pass: it is the gateway's to say, or of one connection

Gateway`
	if err != nil || !strings.HasPrefix(out, want) || !strings.Contains(out, "rule 0 (POST exactly /cart)") {
		t.Errorf("%v, got\n%s", err, out)
	}
}

// TestRenderL7: the table, and what isn't used.
func TestRenderL7(t *testing.T) {
	out, warnings, err := l7Run(t, Render(), "--l7")
	if err != nil || !strings.Contains(out, "POST exactly /cart: HTTPRoute default/cart rule 0") || !strings.Contains(out, "pool default/cart:80 http/1.1 [2001:db8::7]:8080") {
		t.Errorf("%v, got\n%s", err, out)
	}
	if !strings.Contains(warnings, "Deployment default/cart: not used") && !strings.Contains(warnings, "Deployment /cart: not used") {
		t.Errorf("warnings\n%s", warnings)
	}
}
