package apiserver

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/test/wait"
)

const manifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: echo, ports: [{containerPort: 8080, name: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  type: NodePort
  clusterIP: 10.96.0.20
  selector: {app: web}
  ports: [{port: 80, targetPort: http, nodePort: 30020}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  ingressClassName: fairway
  rules:
  - host: web.example.com
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]
---
apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {password: secret}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDRs: [10.244.1.0/24], podCIDR: 10.244.1.0/24}
`

// matches compares a table that kubectl printed, line by line, with patterns
// in which any white space stands for any other.
func matches(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, line := range want {
		pattern := strings.Join(strings.Fields(line), `\s+`)
		if !regexp.MustCompile(`(?m)^` + pattern + `\s*$`).MatchString(got) {
			t.Errorf("no line like %q in\n%s", line, got)
		}
	}
}

func contains(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("no %q in\n%s", w, got)
		}
	}
}

// TestKubectl goes through what people do with kubectl, with the real one.
func TestKubectl(t *testing.T) {
	s := sharedServer(t)
	run := func(args ...string) string { t.Helper(); return kubectl(t, s, "", args...) }
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}

	contains(t, run("apply", "--dry-run=server", "-f", file), "service/web created (server dry run)")
	contains(t, run("apply", "-f", file), "service/web created", "deployment.apps/web created", "ingress.networking.k8s.io/web created")
	contains(t, run("apply", "-f", file), "service/web unchanged", "deployment.apps/web unchanged")
	if out := run("diff", "-f", file); out != "" {
		t.Errorf("a difference after apply:\n%s", out)
	}
	contains(t, run("apply", "--server-side", "-f", file, "--field-manager=test", "--force-conflicts"), "service/web serverside-applied")

	matches(t, run("get", "services"), "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT\\(S\\) AGE",
		`web NodePort 10\.96\.0\.20 <none> 80:30020/TCP \S+`, `kubernetes ClusterIP 10\.96\.0\.1 <none> 443/TCP \S+`)
	matches(t, run("get", "svc", "web", "-o", "wide"), "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT\\(S\\) AGE SELECTOR",
		`web NodePort 10\.96\.0\.20 <none> 80:30020/TCP \S+ app=web`)
	matches(t, run("get", "deploy", "-o", "wide"), "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR", `web 0/2 0 0 \S+ web echo app=web`)
	matches(t, run("get", "ingress"), "NAME CLASS HOSTS ADDRESS PORTS AGE", `web fairway web\.example\.com 80 \S+`)
	matches(t, run("get", "secrets"), "NAME TYPE DATA AGE", `web Opaque 1 \S+`)
	matches(t, run("get", "nodes"), "NAME STATUS ROLES AGE VERSION", `n1 Unknown <none> \S+`)
	matches(t, run("get", "ns"), "NAME STATUS AGE", `default Active \S+`)
	kubectl(t, s, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1, labels: {kubernetes.io/service-name: web}},
		addressType: IPv4, endpoints: [{addresses: [192.0.2.7]}], ports: [{port: 81}]}`, "apply", "-f", "-")
	matches(t, run("get", "endpointslices"), "NAME ADDRESSTYPE PORTS ENDPOINTS AGE", `web-1 IPv4 81 192\.0\.2\.7 \S+`)
	contains(t, run("get", "all"), "service/web", "deployment.apps/web")
	contains(t, run("get", "svc", "web", "-o", "yaml"), "clusterIP: 10.96.0.20", "internalTrafficPolicy: Cluster", "ipFamilyPolicy: SingleStack")
	contains(t, run("get", "svc", "--field-selector", "spec.type=NodePort", "-o", "name"), "service/web")
	contains(t, run("get", "svc", "-w", "--request-timeout=2s", "--output-watch-events"), "ADDED")

	contains(t, run("describe", "service", "web"), "NodePort:", "30020/TCP", "Endpoints:", "Internal Traffic Policy:  Cluster")
	contains(t, run("describe", "deployment", "web"), "Replicas:", "2 desired", "RollingUpdateStrategy:  25% max unavailable, 25% max surge")
	contains(t, run("describe", "node", "n1"), "PodCIDR:", "10.244.1.0/24")
	contains(t, run("describe", "ingress", "web"), "web.example.com")
	contains(t, run("describe", "ns", "default"), "Active")

	contains(t, run("label", "svc", "web", "tier=front"), "labeled")
	contains(t, run("annotate", "svc", "web", "note=x"), "annotated")
	contains(t, run("patch", "svc", "web", "-p", `{"spec":{"sessionAffinity":"ClientIP"}}`), "patched")
	contains(t, run("get", "svc", "web", "-o", "jsonpath={.spec.sessionAffinityConfig.clientIP.timeoutSeconds}"), "10800")
	contains(t, run("scale", "deploy", "web", "--replicas=5"), "scaled")
	contains(t, run("get", "deploy", "web", "-o", "jsonpath={.spec.replicas} {.metadata.generation}"), "5 3") // apply's annotation counts, too
	contains(t, run("explain", "service.spec.externalTrafficPolicy"), "FIELD: externalTrafficPolicy")
	contains(t, run("explain", "endpointslice.endpoints.hints"), "forZones")
	contains(t, run("api-resources"), "services", "endpointslices", "deployments", "ingresses")
	contains(t, run("create", "deployment", "other", "--image=echo"), "created")
	contains(t, run("expose", "deployment", "other", "--port=81"), "service/other exposed")
	contains(t, run("create", "configmap", "c", "--from-literal=a=b"), "created")
	contains(t, run("delete", "deploy,svc", "other", "--wait=false"), `deployment.apps "other" deleted`, `service "other" deleted`)
	contains(t, run("get", "--raw", "/readyz?verbose"), "readyz check passed")
	contains(t, edit(t, s, "web", "sessionAffinity: ClientIP", "sessionAffinity: None"), "service/web edited")

	out, err := tryKubectl(t, s, "", "create", "service", "clusterip", "HelloService", "--tcp=80")
	if err == nil {
		t.Error("HelloService is accepted")
	}
	contains(t, out, `metadata.name: Invalid value: "HelloService": a lowercase RFC 1123 label`)
	out, err = tryKubectl(t, s, "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}], typ: NodePort}}", "apply", "-f", "-")
	if err == nil {
		t.Error("an unknown field is accepted")
	}
	contains(t, out, `unknown field "spec.typ"`)
}

// edit runs kubectl edit with an editor that replaces one text with another.
func edit(t *testing.T, s *Server, service, old, replacement string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nsed -i 's/"+old+"/"+replacement+"/' \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBE_EDITOR", script)
	return kubectl(t, s, "", "edit", "service", service)
}

// TestRolloutStatus: kubectl sees a Deployment's progress in its status.
func TestRolloutStatus(t *testing.T) {
	s := sharedServer(t)
	kubectl(t, s, manifest, "apply", "-f", "-")
	deployments := client(t, s).AppsV1().Deployments("default")
	d, err := deployments.Get(within(t), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Status.ObservedGeneration = d.Generation
	d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = 2, 2, 2, 2
	d.Spec.Replicas = nil // the status subresource leaves the spec alone
	if d, err = deployments.UpdateStatus(within(t), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if *d.Spec.Replicas != 2 || d.Generation != 1 {
		t.Errorf("after a status update %d replicas, generation %d", *d.Spec.Replicas, d.Generation)
	}
	contains(t, kubectl(t, s, "", "rollout", "status", "deployment/web"), "successfully rolled out")
	matches(t, kubectl(t, s, "", "get", "deploy"), `web 2/2 2 2 \S+`)
}

// TestEventsOfObject: describe shows what happened to an object.
func TestEventsOfObject(t *testing.T) {
	s := sharedServer(t)
	c := client(t, s)
	svc, err := c.CoreV1().Services("default").Get(within(t), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CoreV1().Events("default").Create(within(t), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "kubernetes-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "default", Name: svc.Name, UID: svc.UID},
		Reason:         "Tested", Message: "seen by a test", Type: corev1.EventTypeNormal, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
		Source: corev1.EventSource{Component: "test"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, kubectl(t, s, "", "describe", "svc", "kubernetes"), "Tested", "seen by a test")
	matches(t, kubectl(t, s, "", "get", "events"), "LAST SEEN TYPE REASON OBJECT MESSAGE", `\S+ Normal Tested service/kubernetes seen by a test`)
}

// TestOpenAPIIsComplete: every kind that is served can be explained.
func TestOpenAPIIsComplete(t *testing.T) {
	s := sharedServer(t)
	lists, err := client(t, s).Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	var missing []string
	for late := range wait.Tries(2 * time.Minute) { // definitions are published a moment after they are served
		document, err := client(t, s).Discovery().OpenAPISchema()
		if err != nil {
			t.Fatal(err)
		}
		text := []byte(document.String())
		kinds, missing = 0, nil
		for _, list := range lists {
			for _, r := range list.APIResources {
				kinds++
				if !bytes.Contains(text, []byte("."+r.Kind)) {
					missing = append(missing, list.GroupVersion+" "+r.Kind)
				}
			}
		}
		if len(missing) == 0 {
			break
		}
		if late {
			t.Fatalf("not in the OpenAPI document: %v", missing)
		}
	}
	if kinds < 15 {
		t.Errorf("only %d kinds are served", kinds)
	}
}
