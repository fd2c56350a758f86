//go:build !agentonly

package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/documented"
)

// readmeBlock are the lines of the first block of commands under a heading of
// README.md.
func readmeBlock(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatalf("README.md has no commands under %q", heading)
	}
	return strings.Split(strings.TrimSpace(block), "\n")
}

// runReadme runs lines in one shell on a machine of its own, standing in the
// repository, and returns what they print, with each command and its time.
func runReadme(t *testing.T, before string, lines []string) string {
	t.Helper()
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	laptop := newNetwork(t).hosts["laptop"]
	began := time.Now()
	out := laptop.run("install fairway /usr/local/bin/\n" + before + "\ncd " + repository + "\nset -e\n" + timed(lines))
	t.Logf("%d commands took %v:\n%s", len(lines), time.Since(began).Round(100*time.Millisecond), out)
	return out
}

// timed is a script that prints each of the lines, runs it, and prints its time.
func timed(lines []string) string {
	var script strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&script, "echo '$ %s'; began=$(date +%%s%%N)\n%s\necho \"# $(( ($(date +%%s%%N) - began) / 1000000 )) ms\"\n",
			strings.ReplaceAll(line, "'", `'\''`), line)
	}
	return script.String()
}

// recordEnv names a folder that the first five minutes are written to as they
// were seen: see `make check NAME=first-minutes`.
const recordEnv = "FAIRWAY_RECORD"

// record writes down what a reader would have seen, if that is asked for.
func record(t *testing.T, name, seen string) {
	t.Helper()
	folder := os.Getenv(recordEnv)
	if folder == "" {
		return
	}
	// Some programs move the cursor.
	seen = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]").ReplaceAllString(seen, "")
	seen = regexp.MustCompile(`(token[= ])\S+`).ReplaceAllString(seen, "${1}...")
	if err := os.WriteFile(filepath.Join(folder, name+".txt"), []byte(seen), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestREADMELab is somebody who learns Services: the lab of README.md, and in it
// what is to be done when a Service doesn't answer.
func TestREADMELab(t *testing.T) {
	lab := readmeBlock(t, "Try it in a lab")
	last := lab[len(lab)-1]
	if last != "fairway lab down" {
		t.Fatalf("the lab ends with %q", last)
	}
	var lines []string
	for _, line := range append(lab[:len(lab)-1:len(lab)-1], readmeBlock(t, "When a Service doesn't answer")...) {
		line, _, _ = strings.Cut(line, "  #")
		line = strings.TrimSpace(line)
		switch {
		case line == "fairway web": // it serves until somebody ends it
			line = "timeout -s INT 3 " + line + " || true"
		case strings.HasPrefix(line, "fairway doctor"): // it fails where it finds something, and a pod is broken
			line += " || true"
		}
		lines = append(lines, line)
	}
	out := runReadme(t, "trap 'fairway lab down || true' EXIT", append(lines, last, "trap - EXIT"))
	record(t, "learn", strings.TrimSuffix(out[:strings.Index(out, "$ trap - EXIT")], "\n")+"\n")
	for _, want := range []string{
		"is up: 3 nodes, mode nftables", `deployment "hello" successfully rolled out`, "\nhello-",
		"FORWARDED to one of 5 endpoints", "not ready since", "10 of 10 objects as they should be",
		"http://127.0.0.1:", "default/web", "as an example, cluster IP 10.96.0.1", "pool default/hello-service:hello-port/tcp\n  backend 10.244.0.1:8080",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing prints %q", want)
		}
	}
}

// TestREADMEMachines: README.md has somebody with three machines do what
// docs/how-to/machines.md does, which TestFirstFiveMinutes runs.
func TestREADMEMachines(t *testing.T) {
	run := map[string]bool{}
	for _, line := range fiveMinutes(t) {
		run[line[0]] = true
	}
	for _, line := range readmeBlock(t, "Three machines and one address") {
		line, _, _ = strings.Cut(line, "  #")
		if !run[strings.TrimSpace(line)] {
			t.Errorf("docs/how-to/machines.md doesn't have %q", line)
		}
	}
}

// kubeadmCluster are the objects of a cluster made by kubeadm that the operator's
// commands meet: kube-proxy with its configuration, a node, and the kinds that
// Prometheus' operator brings.
const kubeadmCluster = `apiVersion: v1
kind: Node
metadata: {name: worker-1}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: kube-proxy, namespace: kube-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data: {config.conf: "", kubeconfig.conf: ""}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-proxy, namespace: kube-system, labels: {k8s-app: kube-proxy}}
spec:
  selector: {matchLabels: {k8s-app: kube-proxy}}
  template:
    metadata: {labels: {k8s-app: kube-proxy}}
    spec:
      serviceAccountName: kube-proxy
      hostNetwork: true
      containers: [{name: kube-proxy, image: "registry.k8s.io/kube-proxy:v1.36.3"}]
`

// operatorKind is a kind of Prometheus' operator.
const operatorKind = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: KIND, plural: PLURAL}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// TestREADMEOperator is somebody who replaces kube-proxy: the commands of
// README.md against an API, Kubernetes' own where its programs were built. What
// becomes of a node then, TestTakeOver and deploy's TestPod see.
func TestREADMEOperator(t *testing.T) {
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	m := newNetwork(t).hosts["m1"]
	m.run("install fairway /usr/local/bin/; printf '#!/bin/sh\\nexec fairway kubectl \"$@\"\\n' >/usr/local/bin/kubectl; chmod 755 /usr/local/bin/kubectl")
	begin := ""
	if programs := os.Getenv("FAIRWAY_KUBERNETES"); programs != "" {
		m.run("fairway lab up --nodes 1 --kubernetes " + programs)
		defer m.run("fairway lab down")
		begin = "export KUBECONFIG=/run/fairway/lab/lab/kubeconfig\n"
	} else {
		m.start("fairway server")
	}
	cluster := kubeadmCluster
	for kind, plural := range map[string]string{"PrometheusRule": "prometheusrules", "ServiceMonitor": "servicemonitors"} {
		cluster += strings.NewReplacer("KIND", kind, "PLURAL", plural).Replace(operatorKind)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "cluster.yaml"), []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	m.run(begin + "until kubectl get --raw /readyz >/dev/null 2>&1; do sleep 0.2; done; kubectl apply --server-side --field-manager kubeadm -f cluster.yaml" +
		"; kubectl wait --for condition=Established crd --all --timeout 1m")
	var lines []string
	for _, line := range readmeBlock(t, "In kube-proxy's place") {
		line, _, _ = strings.Cut(line, "  #")
		line = strings.ReplaceAll(strings.TrimSpace(line), " NODE ", " worker-1 ")
		if line == "fairway doctor" { // it fails where it finds something, as on a machine without an agent
			line += " || true"
		}
		lines = append(lines, line)
		switch {
		case strings.HasSuffix(line, "deploy/node-by-node"):
			lines = append(lines, "kubectl -n kube-system get daemonset kube-proxy -o jsonpath='{.spec.template.spec.affinity.nodeAffinity}'")
		case strings.HasPrefix(line, "kubectl label"):
			lines = append(lines, "kubectl get nodes -L fairway.dev/proxy --no-headers")
		}
	}
	began := time.Now()
	out := m.run(begin + "cd " + repository + "\nset -e\n" + timed(lines))
	t.Logf("%d commands took %v:\n%s", len(lines), time.Since(began).Round(100*time.Millisecond), out)
	record(t, "operator", out)
	for _, want := range []string{
		"daemonset.apps/fairway serverside-applied", "daemonset.apps/kube-proxy serverside-applied", "daemonset.apps/fairway-cleanup serverside-applied",
		`"operator":"NotIn","values":["fairway"]`, "prometheusrule.monitoring.coreos.com/", "servicemonitor.monitoring.coreos.com/", "configmap/fairway-dashboard",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing prints %q", want)
		}
	}
	if labels := regexp.MustCompile(`(?m)^worker-1 .*\s(\S+)$`).FindAllStringSubmatch(out, -1); len(labels) != 2 || labels[0][1] != "fairway" || labels[1][1] != "kube-proxy" {
		t.Errorf("the node's labels were %q, want fairway and then kube-proxy", labels)
	}
}

// TestREADMEInstall installs, upgrades and uninstalls as docs/how-to/installing.md says. The
// machine's own files stay as they are.
func TestREADMEInstall(t *testing.T) {
	blocks := documented.Blocks(t, "..")
	i := slices.IndexFunc(blocks, func(b documented.Block) bool { return b.File == "docs/how-to/installing.md" })
	if i < 0 {
		t.Fatal("docs/how-to/installing.md has no commands")
	}
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(blocks[i].Text), "\n") {
		line, _, _ = strings.Cut(line, "  #")
		lines = append(lines, line, "echo NOW; ls /etc/systemd/system /etc/default")
	}
	out := runReadme(t, `mkdir -p /run/copy; cp -a /usr/local/bin /run/copy/; for d in /usr/local /etc/default /usr/share/bash-completion /etc/bash_completion.d; do
	[ ! -d $d ] || mount -t tmpfs none $d; done; mkdir -p /usr/local/bin; cp -a /run/copy/bin/. /usr/local/bin/
cp --remove-destination `+os.Args[0]+` /usr/local/bin/fairway; export `+asFairway+`=1`, lines)
	listed := strings.Split(out, "NOW\n")
	if len(listed) != 4 {
		t.Fatalf("%d lists, want 3", len(listed)-1)
	}
	for i, list := range listed[1:3] {
		if !strings.Contains(list, "fairway-up.service") || !strings.Contains(list, "fairway-up\n") {
			t.Errorf("after command %d there is no unit or no options:\n%s", i+1, list)
		}
	}
	if strings.Contains(listed[3], "fairway-up.service") || !strings.Contains(listed[3], "fairway-up\n") {
		t.Errorf("uninstall leaves the unit, or doesn't leave the options:\n%s", listed[3])
	}
}

// TestREADMETargets: the Makefile has the targets that README.md names.
func TestREADMETargets(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)").FindAllStringSubmatch(string(readme), -1)
	if len(targets) < 4 {
		t.Fatalf("found %v only", targets)
	}
	for _, target := range targets {
		if !strings.Contains(string(makefile), "\n"+target[1]+":") {
			t.Errorf("the Makefile has no target %s", target[1])
		}
	}
}
