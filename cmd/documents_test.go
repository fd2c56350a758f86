//go:build !agentonly && docs

package cmd

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/test/documented"
)

// scene is what a block of commands of a document finds when somebody tries it.
type scene struct {
	before string // commands that the reader has behind him
	// change are pairs of texts that mean something of the reader's own.
	change []string
	// fails are beginnings of commands that may end with another code than 0: those that find something.
	fails []string
	// serves are beginnings of commands that serve until somebody ends them, and serving is what
	// they print once they do.
	serves, serving string
	prints          []string // what it prints, among other things
	after           string   // commands that look at what came of it
	on              string   // the machine; m1 by default
}

const (
	inLab = "export KUBECONFIG=/run/fairway/lab/lab/kubeconfig\n"
	web   = "fairway kubectl create deployment web --image=echo --port=80 --replicas=2; fairway kubectl expose deployment web --port=80 --target-port=80; fairway kubectl rollout status deployment web\n"
	// ingresses is what somebody has who has used ingress-nginx.
	ingresses = `mkdir -p manifests
cat >manifests/web.yaml <<EOF
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: nginx}
spec: {controller: k8s.io/ingress-nginx}
---
apiVersion: v1
kind: Service
metadata: {name: cart}
spec: {selector: {app: cart}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: nginx
  rules:
  - host: shop.example.com
    http: {paths: [{path: /cart, pathType: Prefix, backend: {service: {name: cart, port: {number: 80}}}}]}
EOF
`
	machine = "fairway up --bind-address 10.77.0.11 --load-balancer-range 10.77.0.100-10.77.0.110 >up.log 2>&1 & echo $! >>pids; until fairway kubectl get nodes m1 >/dev/null 2>&1; do sleep 0.2; done\n"
)

// scenes are those of all blocks that documented.Runs has TestDocuments run.
var scenes = map[string]scene{
	"docs/how-to/diagnosis.md#A bundle for a bug report": {
		before: "fairway lab up --nodes 2\n" + inLab + "fairway kubectl create namespace shop\n" + strings.ReplaceAll(web, "kubectl ", "kubectl -n shop "),
		fails:  []string{"fairway doctor"}, prints: []string{"FORWARDED"},
	},
	"docs/how-to/dns.md#Cluster DNS": {
		before: "fairway lab up --nodes 1\nexport HOME=$PWD; mkdir -p .kube; cp /run/fairway/lab/lab/kubeconfig .kube/config\n",
		serves: "fairway dns", serving: "DNS started", prints: []string{"10.96.0.1"},
	},
	"docs/how-to/dns.md#On the machines themselves": {before: machine},
	"docs/how-to/ingress.md#Try it":                 {prints: []string{"gateway.networking.k8s.io/gw", "httproute.gateway.networking.k8s.io/web", "hostname: web-"}},
	"docs/how-to/ingress.md#Why does a request go there?": {
		before: "fairway lab up --nodes 1 --gateway --load-balancer-range 172.30.200.0/28\n" + inLab + ingresses + "sed -i 's/k8s.io.ingress-nginx/fairway.dev\\/ingress/' manifests/web.yaml; fairway kubectl apply -f manifests\n",
		fails:  []string{"fairway explain"}, prints: []string{"shop.example.com", "cart"},
	},
	"docs/how-to/loadbalancer.md#The short way": {serves: "fairway up", serving: "API server ready at", prints: []string{"172.30.200.1"}},
	"docs/how-to/loadbalancer.md#Trying it":     {prints: []string{"hello-", "10.99.0.1", "proto bgp"}},
	"docs/how-to/loadbalancer.md#Before work on a node": {
		before: "fairway lab up --nodes 3 --load-balancer-range 172.30.200.1-172.30.200.99\n" + inLab,
		change: []string{"drain n1", "drain node1"},
	},
	"docs/how-to/machines.md#Expose what runs": {before: machine, prints: []string{"10.77.0.100", "web.default.svc.cluster.local"}},
	"docs/how-to/machines.md#Publish: each machine registers what it runs": {
		before: machine + "fairway lab echo --port 8080 >/dev/null 2>&1 & echo $! >>pids\n", fails: []string{"sudo fairway publish db"}, prints: []string{"web"},
	},
	"docs/how-to/machines.md#Clients of other machines": {on: "laptop"},
	"docs/reference/configuration.md#Metrics": {
		before: machine + "mkdir -p /etc/prometheus\n", prints: []string{"SUCCESS", `{"targets":["10.77.0.11:10249"],"labels":{"instance":"m1"}}`}, after: "promtool check config /etc/prometheus/prometheus.yml; grep 10.77.0.11 /etc/prometheus/prometheus.yml; fairway kubectl --token $(cat /etc/prometheus/fairway.token) get --raw /fairway/targets\n",
	},
	"docs/how-to/replacing-ingress-nginx.md#Convert them to Gateway API": {
		before: "fairway lab up --nodes 1 --gateway --load-balancer-range 172.30.200.0/28\n" + inLab + ingresses + "fairway kubectl apply -f manifests\n",
		fails:  []string{"fairway ingress assess", "fairway explain"}, prints: []string{"shop.example.com"},
	},
}

// TestDocuments runs blocks of commands of the documents as they stand there, each in its scene.
// Blocks under one heading run one after the other, each on a machine of its own.
func TestDocuments(t *testing.T) {
	blocks := documented.Blocks(t, "..")
	for place, s := range scenes {
		t.Run(strings.NewReplacer(" ", "-", "/", "_").Replace(place), func(t *testing.T) {
			out := ""
			for _, b := range blocks {
				if b.Place() == place {
					out += s.run(t, b)
				}
			}
			for _, want := range s.prints {
				if !strings.Contains(out, want) {
					t.Errorf("nothing prints %q:\n%s", want, out)
				}
			}
		})
	}
	for _, b := range blocks {
		if _, has := scenes[b.Place()]; !has && documented.Runs[b.Place()] == "TestDocuments" {
			t.Errorf("%s has no scene", b.Place())
		}
	}
}

// TestTutorial runs docs/tutorials/services.md from top to bottom, in one shell.
func TestTutorial(t *testing.T) {
	s := scene{fails: []string{"fairway kubectl exec client -- curl -sS", "fairway explain", "fairway doctor"}}
	var all documented.Block
	for _, b := range documented.Blocks(t, "..") {
		if documented.Runs[b.Place()] == "TestTutorial" {
			all.Text += b.Text
		}
	}
	out := s.run(t, all)
	for _, want := range []string{
		"hostname: web-", "FORWARDED to one of 3 endpoints", "REFUSED: the Service port has no endpoint to use",
		"FW101 proved: selector app=wev matches no pod in namespace default; app=web would match 3", "172.30.200.1", "DROPPED",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing prints %q:\n%s", want, out)
		}
	}
}

func (s *scene) run(t *testing.T, b documented.Block) string {
	t.Helper()
	n := newNetwork(t)
	m := n.hosts[cmp.Or(s.on, "m1")]
	if err := os.WriteFile(filepath.Join(m.dir, "block.sh"), []byte(s.script(b.Text)), 0o700); err != nil {
		t.Fatal(err)
	}
	return m.run("install fairway /usr/local/bin/; cp -a /etc etc; mount --bind etc /etc; trap 'set +e; fairway lab down >/dev/null 2>&1; [ ! -e pids ] || kill $(cat pids); wait' EXIT; . ./block.sh")
}

// script is a block with what comes before it.
func (s *scene) script(text string) string {
	text = strings.NewReplacer(s.change...).Replace(text)
	var script strings.Builder
	script.WriteString("set -e\n" + s.before)
	for line := range strings.Lines(text) {
		begins := func(with string) bool {
			return with != "" && strings.HasPrefix(strings.TrimPrefix(line, "sudo "), strings.TrimPrefix(with, "sudo "))
		}
		command, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "  #")
		switch {
		case begins(s.serves):
			script.WriteString(command + " >served.log 2>&1 & echo $! >>pids\nfor i in $(seq 600); do grep -q '" + s.serving + "' served.log && break; sleep 0.1; done; cat served.log\n")
		case slicesBegin(s.fails, begins):
			script.WriteString(command + " || true\n")
		default:
			script.WriteString(line)
		}
	}
	script.WriteString(s.after)
	return script.String()
}

func slicesBegin(list []string, begins func(string) bool) bool {
	for _, with := range list {
		if begins(with) {
			return true
		}
	}
	return false
}
