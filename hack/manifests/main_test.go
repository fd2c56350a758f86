package main

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

var update = flag.Bool("update", false, "write the golden files anew")

const deploy = "../../deploy"

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(filepath.Join(deploy, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLint: `helm lint` has nothing to say.
func TestLint(t *testing.T) {
	values := map[string]any{"agent": map[string]any{"apiServer": "https://api:6443"}}
	for _, m := range lint.All(filepath.Join(deploy, "chart"), values, "kube-system", true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// TestGolden: what a release applies, for each file of values in testdata.
func TestGolden(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range cases {
		name := strings.TrimSuffix(filepath.Base(file), ".values.yaml")
		t.Run(name, func(t *testing.T) {
			values, err := chartutil.ReadValuesFile(file)
			if err != nil {
				t.Fatal(err)
			}
			rendered, err := render(load(t), "kube-system", values)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			for _, template := range slices.Sorted(maps.Keys(rendered)) {
				if s := strings.TrimSpace(rendered[template]); s != "" && strings.HasSuffix(template, ".yaml") && !strings.HasSuffix(template, "dashboard.yaml") {
					text.WriteString("---\n# " + template + "\n" + s + "\n")
				}
			}
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, text.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text.Bytes(), want) {
				t.Errorf("%s differs from what the chart renders (-update writes it anew)", golden)
			}
		})
	}
}

// TestRefused: values that can't be meant are refused by the name of their field.
func TestRefused(t *testing.T) {
	api := "agent: {apiServer: https://api:6443}\n"
	for _, c := range []struct{ name, values, want string }{
		{"no API server", "", "agent.apiServer"},
		{"no URL", "agent: {apiServer: api:6443}", "/agent/apiServer"},
		{"unknown mode", "agent: {apiServer: https://api:6443, mode: xdp}", "/agent/mode"},
		{"typo", api + "anounce: {enabled: true}", "anounce"},
		{"typo below", api + "gateway: {enabld: true}", "enabld"},
		{"a word for a switch", api + "addresses: {enabled: maybe}", "/addresses/enabled"},
		{"no range", api + "addresses: {enabled: true, ranges: [all of them]}", "/addresses/ranges/0"},
		{"no replica", api + "addresses: {enabled: true, replicas: 0}", "/addresses/replicas"},
		{"cleanup beside agents", api + "cleanup: {enabled: true}", "agent.enabled=false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			values, err := chartutil.ReadValues([]byte(c.values))
			if err != nil {
				t.Fatal(err)
			}
			_, err = render(load(t), "kube-system", values)
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), ".", "/"), strings.ReplaceAll(c.want, ".", "/")) {
				t.Errorf("the error is %v, want one that names %s", err, c.want)
			}
		})
	}
}
