//go:build realcluster

package realcluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

// prometheusConfig has the agents' addresses: Debian's Prometheus can't ask Kubernetes.
const prometheusConfig = `
global: {scrape_interval: 2s, evaluation_interval: 2s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: fairway
  static_configs: [{targets: %s}]
`

// monitored has Prometheus watch the agents as docs/reference/configuration.md says for clusters
// without its operator, and looks at what it sees.
func (h *charted) monitored() {
	h.t.Helper()
	h.must(h.c.EditConfig(metricsLine, "metricsBindAddress: 0.0.0.0:10249"))
	prometheus, err := h.prometheus()
	h.must(err)
	nodes := fmt.Sprint(len(h.c.Nodes))
	for _, query := range []string{`count(up{job="fairway"} == 1)`, `count(count by (instance) (fairway_build_info))`,
		`count(kubeproxy_sync_proxy_rules_service_changes_pending == 0)`} {
		err := h.c.await("Prometheus says "+query+" = "+nodes, func() error {
			got, err := prometheus.value(query)
			if err == nil && got != nodes {
				err = fmt.Errorf("it says %q", got)
			}
			return err
		})
		if err != nil {
			h.t.Error(err)
		}
	}
	if err := h.c.await("each rule is evaluated, and no alert is there", prometheus.calm); err != nil {
		h.t.Error(err)
	}
}

// prometheus runs Prometheus on the administrator's machine.
func (h *charted) prometheus() (*watcher, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(h.c.options.Deploy, "monitoring/prometheusrule.yaml"))
	if err != nil {
		return nil, err
	}
	var rule struct{ Spec any }
	if err := yaml.Unmarshal(text, &rule); err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	rules, err := yaml.Marshal(rule.Spec)
	if err != nil {
		return nil, err
	}
	targets, err := h.scraped()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(h.c.dir, "prometheus-")
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"rules.yaml": string(rules), "prometheus.yaml": fmt.Sprintf(prometheusConfig, targets)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	out, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	client := h.c.lab.Client()
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+dir, "--web.listen-address=127.0.0.1:9090")
	cmd.Stdout, cmd.Stderr = out, out
	if err := client.Start(cmd); err != nil {
		return nil, fmt.Errorf("start prometheus: %w", err)
	}
	h.c.asking = append(h.c.asking, cmd)
	return &watcher{http.Client{Transport: &http.Transport{DialContext: client.DialContext, DisableKeepAlives: true}, Timeout: timeout}}, nil
}

// scraped are the addresses that the Service of monitoring lists, as a list of YAML.
func (h *charted) scraped() (string, error) {
	out, err := h.c.Kubectl("", "-n", "kube-system", "get", "endpointslices", "-l", discoveryv1.LabelServiceName+"=fairway-metrics", "-o", "json")
	if err != nil {
		return "", err
	}
	var slices discoveryv1.EndpointSliceList
	if err := json.Unmarshal([]byte(out), &slices); err != nil {
		return "", fmt.Errorf("read EndpointSlices: %w", err)
	}
	var targets []string
	for _, s := range slices.Items {
		targets = append(targets, readyAddresses(s)...)
	}
	text, err := json.Marshal(targets)
	return string(text), err
}

// watcher is a Prometheus.
type watcher struct{ http http.Client }

func (p *watcher) get(path string, into any) error {
	response, err := p.http.Get("http://127.0.0.1:9090/api/v1/" + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// value is what a query of one value says.
func (p *watcher) value(query string) (string, error) {
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := p.get("query?query="+url.QueryEscape(query), &answer); err != nil || len(answer.Data.Result) == 0 {
		return "", err
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1]), nil
}

// calm says which rules can't be evaluated, and which alerts are there.
func (p *watcher) calm() error {
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError, State string }
			}
		}
	}
	if err := p.get("rules", &answer); err != nil {
		return err
	}
	var wrong []string
	rules := 0
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			// The workload has a Service without endpoints.
			if rules++; r.Health != "ok" || r.State != "inactive" && r.Name != "FairwayServicesWithoutEndpoints" {
				wrong = append(wrong, fmt.Sprintf("%s is %s %s %s", r.Name, r.Health, r.State, r.LastError))
			}
		}
	}
	if rules == 0 || len(wrong) > 0 {
		return fmt.Errorf("of %d rules: %s", rules, strings.Join(wrong, "; "))
	}
	return nil
}
