package examine

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// elsewhere is an agent that this user has no way to.
func elsewhere(node string) agentlink.Found {
	return agentlink.Found{Node: node, Err: errors.New("pods/exec is forbidden")}
}

// TestAgentsWithoutAWay: with an account that may not ask other nodes' agents, these are named,
// and nothing ends.
func TestAgentsWithoutAWay(t *testing.T) {
	x := &Examiner{Source: &collect.Source{}, Domain: "cluster.local"}
	agents := []agentlink.Found{elsewhere("n2"), elsewhere("n3")}
	e := &doctor.Evidence{Objects: &explain.Objects{}, Service: &corev1.Service{}, Report: &explain.Report{From: explain.Source{Node: "n2"}}}
	x.askAgents(t.Context(), e, func() []agentlink.Found { return agents })
	x.lookAtNodes(t.Context(), e, agents)
	announced(t.Context(), e, agents)
	if text := strings.Join(e.NotAsked, "\n"); !strings.Contains(text, "n2, n3: pods/exec is forbidden") {
		t.Errorf("not asked: %q", text)
	}
	if len(e.Agents) != 0 || len(e.Nodes) != 0 || e.NoNodes == "" || len(e.Announced) != 0 || e.NoAnnounced == "" {
		t.Errorf("evidence: %+v", e)
	}
}

// TestNodesThatPacketsPass: of a client whose node is known, that node comes first and those with
// endpoints follow; else all nodes may be passed.
func TestNodesThatPacketsPass(t *testing.T) {
	holder := "n3"
	objects := &explain.Objects{
		Services: []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}},
		Slices: []*discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.244.3.2"}, NodeName: &holder}},
		}},
	}
	e := &doctor.Evidence{Objects: objects, Question: explain.Question{Target: explain.Target{Namespace: "default", Name: "web"}}}
	agents := []agentlink.Found{elsewhere("n1"), elsewhere("n2"), elsewhere("n3"), elsewhere("n4")}
	names := func(client string) (list []string) {
		for _, a := range (&Examiner{}).order(e, client, agents) {
			list = append(list, a.Name())
		}
		return list
	}
	if got := names("n4"); !slices.Equal(got, []string{"n4", "n3"}) {
		t.Errorf("from n4: %v", got)
	}
	if got := names(""); len(got) != 4 {
		t.Errorf("from anywhere: %v", got)
	}
}

// TestAllFromOneClient: the client of a survey is looked up in the default namespace, whichever
// namespaces the Services are in.
func TestAllFromOneClient(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	text := `
apiVersion: v1
kind: Pod
metadata: {namespace: default, name: client-a}
spec: {nodeName: n1}
status: {phase: Running, podIP: 10.244.1.7, podIPs: [{ip: 10.244.1.7}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: kube-system, name: broken}
spec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	x := &Examiner{Source: &collect.Source{Files: []string{file}, Namespace: "default"}, From: "pod/client-a", Domain: "cluster.local"}
	survey, err := x.All(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := survey.WriteText(&out); err != nil || !strings.Contains(out.String(), "kube-system/broken  FW102") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
