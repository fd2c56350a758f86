package web

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/flows"
	"github.com/fairway-net/fairway/test/fakeapi"
)

// shop is a node, two Services, one of which selects nothing, and their pods.
const shop = `
apiVersion: v1
kind: Node
metadata: {name: node1, annotations: {fairway.dev/mode: nftables, fairway.dev/version: v1.2.0}}
spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24, "fd00:1::/64"]}
status: {addresses: [{type: InternalIP, address: 172.30.0.11}, {type: InternalIP, address: "fd00::11"}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: default, name: web}
spec: {type: ClusterIP, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::10"], ipFamilies: [IPv4, IPv6], selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: default, name: lost}
spec: {type: ClusterIP, clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], selector: {app: wbe}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: default, name: web-1, labels: {app: web}}
spec: {nodeName: node1, containers: [{name: web, image: web, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.244.1.2, podIPs: [{ip: 10.244.1.2}, {ip: "fd00:1::2"}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: web-4, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.2], nodeName: node1, targetRef: {kind: Pod, name: web-1, namespace: default}, conditions: {ready: true}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: web-6, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: ["fd00:1::2"], nodeName: node1, targetRef: {kind: Pod, name: web-1, namespace: default}, conditions: {ready: true}}]
`

// TestAPI asks everything of a small cluster.
func TestAPI(t *testing.T) {
	r := start(t, shop, nil).enter()
	problems := until(r, "problems", func(p Problems) bool { return p.Services == 2 && p.Waiting == 0 && p.Counts["proved"] > 0 })
	if p := problems.Problems[0]; p.Code != doctor.SelectorMatchesNoPod || p.Service != "default/lost" || p.Grade != "proved" || !strings.Contains(p.What, "app=web would match 1") || p.Fix == "" {
		t.Errorf("the first problem is %+v", p)
	}
	var list Services
	r.get("services?sort=worst", &list)
	if names := namesOf(list); !slices.Equal(names, []string{"lost", "web"}) || list.Total != 2 {
		t.Errorf("Services, worst first: %v of %d", names, list.Total)
	}
	for query, want := range map[string]string{"WEB": "web", "10.96.0.11": "lost", "fd00:96::10": "web", "8080": "web", "fw101": "lost", "default lost": "lost", "nothing": ""} {
		r.get("services?q="+strings.ReplaceAll(query, " ", "+"), &list)
		if names := strings.Join(namesOf(list), " "); names != want {
			t.Errorf("search for %q: %q, want %q", query, names, want)
		}
	}

	var one Service
	r.get("services/default/web?from=pod/web-1", &one)
	if e := one.Explanation; e.Outcome != "forwarded" || len(e.Views) != 1 || len(e.Views[0].Decisions) != 2 || len(e.Endpoints) != 2 {
		t.Errorf("web from its pod: %+v", e)
	}
	if one.Row.Ready != 2 || one.FromError != "" || len(one.Diagnosis.Results) == 0 {
		t.Errorf("web: %+v", one)
	}
	r.get("services/default/web?from=pod/nobody", &one)
	if !strings.Contains(one.FromError, "there is no pod default/nobody") || len(one.Explanation.Views) == 0 {
		t.Errorf("from a pod that isn't there: %q, and %+v", one.FromError, one.Explanation)
	}
	r.get("services/default/webb", &one)
	if !strings.Contains(one.Explanation.Answer, "there is no Service default/webb; did you mean web") {
		t.Errorf("a wrong name: %q", one.Explanation.Answer)
	}
	nodes := until(r, "nodes", func(n Nodes) bool { return len(n.Nodes) == 1 })
	if n := nodes.Nodes[0]; n.Mode != "nftables" || n.Version != "v1.2.0" || !n.Ready || n.Agent != nil || !slices.Equal(n.Addresses, []string{"172.30.0.11", "fd00::11"}) {
		t.Errorf("the node: %+v", n)
	}
	var cause Cause
	if r.get("causes/fw101", &cause); cause.Code != doctor.SelectorMatchesNoPod || cause.Meaning == "" {
		t.Errorf("the cause: %+v", cause)
	}
	for _, path := range []string{"services?offset=x", "services?limit=-1", "services?sort=age", "services/default/web/more", "causes/FW999", "flows", "what"} {
		if code := r.do(http.MethodGet, "/api/v1/"+path, nil).StatusCode; code != http.StatusBadRequest && code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func namesOf(list Services) []string {
	var names []string
	for _, s := range list.Services {
		names = append(names, s.Name)
	}
	return names
}

// TestChanges: what the API tells of is shown, the latest first, and browsers hear
// of it.
func TestChanges(t *testing.T) {
	r := start(t, shop, nil).enter()
	until(r, "summary", func(s Summary) bool { return s.Synced && s.Services == 2 && s.Waiting == 0 })
	heard := bufio.NewScanner(r.do(http.MethodGet, "/api/v1/events", nil).Body)
	if !heard.Scan() || heard.Text() != "event: hello" {
		t.Fatalf("the stream begins with %q", heard.Text())
	}
	r.apply(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: web-4, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.2], nodeName: node1, conditions: {ready: false}}, {addresses: [10.244.1.3], conditions: {ready: true}}]`)
	for heard.Scan() {
		if text, found := strings.CutPrefix(heard.Text(), "data: "); found && strings.Contains(text, topicChanges) {
			break
		}
	}
	var changes Changes
	r.get("changes?q=web", &changes)
	if len(changes.Changes) != 1 || !slices.Equal(changes.Changes[0].What, []string{"endpoint 10.244.1.2 is not ready", "endpoint 10.244.1.3 is new, ready"}) {
		t.Errorf("changes: %+v", changes.Changes)
	}
	if err := r.api.Delete("services", "default", "lost"); err != nil {
		t.Fatal(err)
	}
	until(r, "changes", func(c Changes) bool {
		return c.Found == 2 && c.Changes[0].Service == "default/lost" && c.Changes[0].What[0] == "the Service is gone"
	})
	until(r, "problems", func(p Problems) bool { return p.Counts["proved"] == 0 && p.Services == 1 })
}

// TestNoRights: what the user may not read is said, and the rest is shown.
func TestNoRights(t *testing.T) {
	r := start(t, shop, func(api *fakeapi.Server, _ *Config) {
		api.Rules = []rbacv1.PolicyRule{
			{APIGroups: []string{"", "discovery.k8s.io"}, Resources: []string{"services", "endpointslices"}, Verbs: []string{"list", "watch"}},
		}
	}).enter()
	summary := until(r, "summary", func(s Summary) bool { return s.Synced && len(s.Parts) == 3 && s.Waiting == 0 && s.Parts[0].Error != "" })
	for i, resource := range []string{"nodes", "pods", "networkpolicies"} {
		if p := summary.Parts[i]; p.Resource != resource || p.Reading && p.Error == "" {
			t.Errorf("part %d is %+v, want %s", i, p, resource)
		}
	}
	one := until(r, "services/default/web", func(s Service) bool { return s.Explanation.Outcome == "forwarded" })
	if len(one.Explanation.NotChecked) == 0 {
		t.Errorf("what isn't known isn't said: %+v", one.Explanation)
	}
	var nodes Nodes
	if r.get("nodes", &nodes); nodes.Error == "" {
		t.Errorf("that Nodes can't be listed isn't said: %+v", nodes)
	}
}

// TestAgents: nodes say how their agents are, and one that doesn't answer is a
// problem, not the end.
func TestAgents(t *testing.T) {
	r := start(t, shop, func(_ *fakeapi.Server, c *Config) {
		c.Agents = func(context.Context) []agentlink.Found {
			return []agentlink.Found{
				{Err: errors.New("ask the agent at /run/fairway/agent.sock: permission denied")},
				{Client: agentlink.New("/nowhere"), Status: agentlink.Status{Node: "node1", Mode: "ebpf", Version: "v1.2.1", LeftOut: []agentlink.LeftOut{{What: "port 99"}},
					Ahead: []agentlink.Ahead{{What: "the program shaper at eth0 ingress sees packets"}}}},
			}
		}
		c.Flows = func(_ context.Context, _ func() flows.Names, tell func(flows.Record), note func(string)) error {
			note("node2 keeps connections elsewhere")
			tell(flows.Record{Service: "default/web:http", Verdict: flows.Answered})
			tell(flows.Record{Service: "default/other:http"})
			return errors.New("no more")
		}
		c.Examine = func(_ context.Context, namespace, name, from string) (*doctor.Report, error) {
			return &doctor.Report{Target: namespace + "/" + name + " " + from}, nil
		}
	}).enter()
	nodes := until(r, "nodes", func(n Nodes) bool { return len(n.Nodes) == 1 && n.Nodes[0].Ready && len(n.Nodes[0].Addresses) > 0 })
	if n := nodes.Nodes[0]; n.Mode != "ebpf" || n.Version != "v1.2.1" || n.Agent.Sync != syncStarting || len(nodes.Elsewhere) != 1 {
		t.Errorf("nodes: %+v, %v", n, nodes.Elsewhere)
	}
	problems := until(r, "problems?q=node1", func(p Problems) bool { return p.Found == 3 })
	if p := problems.Problems[0]; p.What != "not in force: port 99" || p.Grade != "proved" {
		t.Errorf("problems: %+v", problems.Problems)
	}
	if !slices.ContainsFunc(problems.Problems, func(p Problem) bool { return strings.Contains(p.What, "shaper at eth0 ingress") && p.Grade == "likely" }) {
		t.Errorf("whose program is first isn't said: %+v", problems.Problems)
	}
	one := until(r, "services/default/web", func(s Service) bool { return s.Row.Name == "web" })
	if text := strings.Join(one.Explanation.NotChecked, "\n"); !strings.Contains(text, "agent of node1") {
		t.Errorf("that the agent doesn't answer isn't said: %q", text)
	}
	stream := bufio.NewScanner(r.do(http.MethodGet, "/api/v1/flows?service=default/web", nil).Body)
	var events []string
	for stream.Scan() {
		if name, found := strings.CutPrefix(stream.Text(), "event: "); found {
			events = append(events, name)
		}
	}
	if want := []string{"hello", "note", "flow", "note", "end"}; !slices.Equal(events, want) {
		t.Errorf("the stream of flows has %v, want %v", events, want)
	}
	if response := r.do(http.MethodPost, "/api/v1/services/default/web/examine?from=pod/a", nil); response.StatusCode != http.StatusOK {
		t.Errorf("examine: %s", response.Status)
	}
}
