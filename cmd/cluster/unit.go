//go:build !agentonly

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/deploy/install"
	"github.com/fairway-net/fairway/internal/keptfile"
)

// AgentUnit is the systemd unit of a joined machine.
const AgentUnit = "fairway-agent.service"

// AgentUnitFile is where it is.
const AgentUnitFile = "/etc/systemd/system/" + AgentUnit

// agentUnitText runs the agent as the flags say that were given to join.
func agentUnitText(executable, dir string, given *pflag.FlagSet) string {
	args := append([]string{executable, "join", "--data-dir=" + dir}, install.Args(given, config.TokenFlag, config.TokenFileFlag, "systemd", "data-dir")...)
	for i, a := range args {
		args[i] = install.Quote(a)
	}
	return `[Unit]
Description=Fairway agent
Documentation=https://github.com/fairway-net/fairway
Wants=network-online.target
After=network-online.target
# Try for as long as it takes: a taken port or a missing file may be mended.
StartLimitIntervalSec=0

[Service]
# The userspace mode's relay goes on without the agent.
KillMode=process
LimitNOFILE=1048576
ExecStart=` + strings.Join(args, " ") + `
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
`
}

// installAgentUnit writes the unit and starts it.
func installAgentUnit(cmd *cobra.Command, dir string) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	if err := keptfile.Write(AgentUnitFile, []byte(agentUnitText(executable, dir, cmd.Flags())), 0o644); err != nil {
		return err
	}
	if err := install.Systemctl("daemon-reload"); err != nil {
		return err
	}
	if err := install.Systemctl("enable", "--now", AgentUnit); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "joined; %s runs the agent: journalctl -u %s\n", AgentUnit, AgentUnit)
	return nil
}

// removeAgentUnit stops and removes the unit, if there is one.
func removeAgentUnit() error {
	if _, err := os.Stat(AgentUnitFile); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := install.Systemctl("disable", "--now", AgentUnit); err != nil {
		return err
	}
	if err := os.Remove(AgentUnitFile); err != nil {
		return fmt.Errorf("remove unit: %w", err)
	}
	return install.Systemctl("daemon-reload")
}
