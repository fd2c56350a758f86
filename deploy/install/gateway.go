package install

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairway-net/fairway/deploy"
)

const (
	gatewayUnit     = unitFolder + "/fairway-gateway.service"
	gatewaySettings = settings + "/fairway-gateway"
	// credential leads the gateway's unit to the API: an agent's may read no Secrets.
	credential = "/etc/fairway/kubeconfig"
)

// makeGateway adds the unit that serves Gateways and Ingresses beside a role, if that
// is asked for or an earlier installation has it.
func (o *Options) makeGateway(made *record) error {
	if o.Credential != "" {
		text, err := os.ReadFile(o.Credential)
		if err != nil {
			return fmt.Errorf("read kubeconfig: %w", err)
		}
		if err := made.write(credential, text, 0o600); err != nil {
			return err
		}
	}
	if o.Role == gatewayRole || o.Gateway == nil && !made.Gateway {
		return nil
	}
	unit, err := deploy.Units.ReadFile("systemd/" + UnitName(gatewayRole))
	if err != nil {
		return fmt.Errorf("read unit: %w", err)
	}
	made.Gateway = true
	if err := made.write(filepath.Join(unitFolder, UnitName(gatewayRole)), unit, 0o644); err != nil {
		return err
	}
	return o.makeSettings(made, gatewaySettings, o.Gateway)
}

// startGateway starts the gateway's unit. One that runs is replaced without a
// connection being refused. Without a credential, it says what is missing.
func (o *Options) startGateway(made *record, systemctl func(args ...string) error) error {
	name := UnitName(gatewayRole)
	switch {
	case o.Role != gatewayRole && !made.Gateway:
		return nil
	case !made.exists(credential):
		fmt.Fprintf(o.Out, "Gateways are served once %s is there, with rights as in deploy/gateway/rbac.yaml, and after: systemctl enable --now %s\n", credential, name)
		return nil
	case systemctl == nil || o.NoStart:
		fmt.Fprintf(o.Out, "start what serves Gateways with: systemctl enable --now %s\n", name)
		return nil
	}
	if err := systemctl("enable", name); err != nil {
		return err
	}
	if err := systemctl("reload-or-restart", name); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "installed; %s runs: journalctl -u %s\n", name, name)
	return nil
}
