//go:build !agentonly

package diagnosis

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/deploy"
	"github.com/fairway-net/fairway/diagnose/collect"
)

// monitoringParts are what monitoring prints, by the argument that asks for it.
var monitoringParts = map[string]string{
	"scrape": "prometheus.yaml", "rights": "prometheus-rights.yaml", "rules": "prometheusrule.yaml", "dashboard": "dashboard.json",
}

func Monitoring() *cobra.Command {
	var objects collect.Source
	c := &cobra.Command{
		Use:   "monitoring scrape|rights|rules|dashboard",
		Short: "Print what Prometheus and Grafana need to watch plain machines",
		Long: `Print what Prometheus and Grafana need to watch plain machines:

  scrape      Prometheus' configuration: it finds the machines by asking the API server
  rights      manifests of the account that it asks as
  rules       alerts, as a file of rules, without Prometheus' operator
  dashboard   a dashboard for Grafana`,
		Example: `  fairway monitoring rights | sudo fairway kubectl apply -f -
  sudo fairway monitoring scrape >prometheus.yml
  fairway monitoring rules >fairway.rules.yaml`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"scrape", "rights", "rules", "dashboard"},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := deploy.Monitoring.ReadFile("monitoring/" + monitoringParts[args[0]])
			if err != nil {
				return err
			}
			switch args[0] {
			case "scrape":
				api, err := objects.Config()
				if err != nil {
					return err
				}
				text = []byte(strings.Replace(string(text), "SERVER/", strings.TrimSuffix(api.Host, "/")+"/", 1))
			case "rules":
				if text, err = ruleFile(text); err != nil {
					return err
				}
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	c.Flags().StringVar(&objects.Kubeconfig, "kubeconfig", "", collect.KubeconfigHelp)
	return c
}

// ruleFile is the spec of a PrometheusRule, which is a file of rules.
func ruleFile(manifest []byte) ([]byte, error) {
	var rule struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(manifest, &rule); err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	return yaml.Marshal(rule.Spec)
}
