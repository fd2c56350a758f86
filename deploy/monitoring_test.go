package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// TestMonitoring: the folder can be applied, the Service finds the agents, and
// Prometheus' own tool takes the rules, their tests and the dashboard's queries.
func TestMonitoring(t *testing.T) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "monitoring")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, r := range resources.Resources() {
		kinds[r.GetKind()] = true
	}
	for _, kind := range []string{"Service", "ServiceMonitor", "PrometheusRule", "ConfigMap"} {
		if !kinds[kind] {
			t.Errorf("no %s is applied", kind)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("promtool: %v (hack/install-deps.sh installs it)", err)
	}
	dir := t.TempDir()
	check := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests, err := os.ReadFile("monitoring/rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write("rules.yaml", ruleFile(t))
	write("rules_test.yaml", tests)
	write("queries.yaml", queryFile(t))
	check("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", "queries.yaml")
	check("test", "rules", "rules_test.yaml")
}

// ruleFile is what is below spec of the PrometheusRule.
func ruleFile(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("monitoring/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &rule); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(rule.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// queryFile has the queries of the dashboard as recording rules.
func queryFile(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Record string            `json:"record"`
		Expr   string            `json:"expr"`
		Labels map[string]string `json:"labels"`
	}
	var rules []rule
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", "fairway", "$instance", ".*").Replace(q.Expr)
			rules = append(rules, rule{Record: "query", Expr: expr, Labels: map[string]string{"n": string(rune('a' + len(rules)))}})
		}
	}
	if len(rules) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	out, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
