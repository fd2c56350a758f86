package oldapi_test

import (
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/oldapi"
)

const old = `
apiVersion: extensions/v1beta1
kind: Deployment
metadata: {name: nginx}
spec:
  rollbackTo: {revision: 1}
  template: {metadata: {labels: {app: nginx}}, spec: {containers: [{name: nginx, image: nginx}]}}
---
apiVersion: extensions/v1beta1
kind: Ingress
metadata: {name: test}
spec:
  backend: {serviceName: s0, servicePort: http}
  rules:
  - host: foo.example
    http: {paths: [{backend: {serviceName: s1, servicePort: 80}}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
`

const now = `---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx
spec:
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
    spec:
      containers:
      - image: nginx
        name: nginx
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: test
spec:
  defaultBackend:
    service:
      name: s0
      port:
        name: http
  rules:
  - host: foo.example
    http:
      paths:
      - backend:
          service:
            name: s1
            port:
              number: 80
        pathType: ImplementationSpecific
---
apiVersion: v1
kind: Service
metadata:
  name: web
`

// TestConvert: old forms become the present ones, and others stay.
func TestConvert(t *testing.T) {
	var out strings.Builder
	if err := oldapi.ConvertAll(strings.NewReader(old), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != now {
		t.Errorf("got\n%s\nwant\n%s", out.String(), now)
	}
}

// TestBadInput: what can't be converted is named.
func TestBadInput(t *testing.T) {
	err := oldapi.ConvertAll(strings.NewReader(strings.Replace(old, "servicePort: 80", "x: 80", 1)), &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "document 2: convert Ingress test: spec.rules[0].http.paths[0].backend.servicePort: it is missing") {
		t.Errorf("error: %v", err)
	}
}

// TestNames: names that the API never took are changed where they are given and
// where they are referred to, and that is said.
func TestNames(t *testing.T) {
	const in = `
apiVersion: v1
kind: Service
metadata: {name: HelloService2}
spec: {ports: [{name: HelloPort, port: 80, targetPort: hello}, {name: http, port: 81}]}
---
apiVersion: extensions/v1beta1
kind: Ingress
metadata: {name: test}
spec: {backend: {serviceName: HelloService2, servicePort: 80}}
`
	var out strings.Builder
	if err := oldapi.ConvertAll(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`# Service "HelloService2" is "hello-service2" here`, `# spec.ports[0].name "HelloPort" is "hello-port" here`,
		"name: hello-service2\nspec:\n  ports:\n  - name: hello-port\n", "targetPort: hello\n  - name: http\n", "service:\n      name: hello-service2\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
