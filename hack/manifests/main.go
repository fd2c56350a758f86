// Command manifests renders the files of deploy/'s kustomizations from the chart in
// deploy/chart, so that `kubectl apply -k` and `helm install` apply the same objects:
//
//	go run -C hack/manifests . ../../deploy
package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// folder is a kustomization's folder below deploy/ whose files are templates of the chart.
type folder struct {
	path      string
	namespace string
	values    string            // below deploy/chart/kustomize
	files     map[string]string // file to template, or to "crds"
}

var folders = []folder{
	{"base", "kube-system", "base.yaml", map[string]string{
		"rbac.yaml": "agent/rbac.yaml", "configmap.yaml": "agent/configmap.yaml", "daemonset.yaml": "agent/daemonset.yaml",
	}},
	{"loadbalancer", "kube-system", "loadbalancer.yaml", map[string]string{"rbac.yaml": "announce/rbac.yaml"}},
	{"pools", "metallb-system", "loadbalancer.yaml", map[string]string{"crds.yaml": "crds"}},
	{"addresses", "kube-system", "loadbalancer.yaml", map[string]string{
		"rbac.yaml": "addresses/rbac.yaml", "deployment.yaml": "addresses/deployment.yaml",
	}},
	{"gateway", "fairway-gateway", "gateway.yaml", map[string]string{
		"rbac.yaml": "gateway/rbac.yaml", "engine.yaml": "gateway/engine.yaml", "controller.yaml": "gateway/controller.yaml",
	}},
	{"gateway/acme", "fairway-gateway", "acme.yaml", map[string]string{"rbac.yaml": "gateway/acme.yaml"}},
	{"monitoring", "kube-system", "monitoring.yaml", map[string]string{
		"service.yaml": "monitoring/service.yaml", "servicemonitor.yaml": "monitoring/servicemonitor.yaml", "prometheusrule.yaml": "monitoring/prometheusrule.yaml",
	}},
	{"cleanup", "kube-system", "cleanup.yaml", map[string]string{"daemonset.yaml": "cleanup/daemonset.yaml"}},
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: manifests DEPLOY")
	}
	deploy := os.Args[1]
	for _, f := range folders {
		files, err := f.render(filepath.Join(deploy, "chart"))
		if err != nil {
			log.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			file := filepath.Join(deploy, f.path, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				log.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(files[name]), 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// render returns the folder's files.
func (f folder) render(dir string) (map[string]string, error) {
	fairway, err := loader.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("load chart: %w", err)
	}
	values, err := chartutil.ReadValuesFile(filepath.Join(dir, "kustomize", f.values))
	if err != nil {
		return nil, fmt.Errorf("read values of %s: %w", f.path, err)
	}
	rendered, err := render(fairway, f.namespace, values)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", f.path, err)
	}
	files := map[string]string{}
	for name, template := range f.files {
		if template == "crds" {
			files[name] = definitions(fairway)
			continue
		}
		text := rendered[path.Join("fairway/templates", template)]
		if strings.TrimSpace(text) == "" {
			return nil, fmt.Errorf("render %s: the template %s is empty", f.path, template)
		}
		files[name] = "# Generated from deploy/chart/templates/" + template + " by `make generate`: change it there.\n" + strings.TrimSpace(text) + "\n"
	}
	return files, nil
}

// definitions are those of MetalLB's kinds.
func definitions(c *chart.Chart) string {
	text := "# Generated from apis/metallb/crds by `make generate`: change it there.\n"
	for _, o := range c.CRDObjects() {
		text += "---\n" + strings.TrimPrefix(strings.TrimSpace(string(o.File.Data)), "---\n") + "\n"
	}
	return text
}

// render returns what `helm template --namespace` prints, by template.
func render(c *chart.Chart, namespace string, values map[string]any) (map[string]string, error) {
	options := chartutil.ReleaseOptions{Name: "fairway", Namespace: namespace, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}
