//go:build !agentonly

package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// agentUnit is the systemd unit of a joined machine.
const agentUnit = "fairway-agent.service"

// agentUnitFile is a variable for tests.
var agentUnitFile = "/etc/systemd/system/" + agentUnit

// agentUnitText runs the agent as the flags say that were given to join.
func agentUnitText(executable, dir string, given *pflag.FlagSet) string {
	args := []string{executable, "join", "--data-dir=" + dir}
	given.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "token", "systemd", "data-dir":
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, value := range list.GetSlice() {
				args = append(args, "--"+f.Name+"="+value)
			}
			return
		}
		args = append(args, "--"+f.Name+"="+f.Value.String())
	})
	for i, a := range args {
		args[i] = unitQuote(a)
	}
	return `[Unit]
Description=Fairway agent
Documentation=https://github.com/fairway-net/fairway
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=` + strings.Join(args, " ") + `
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
`
}

// unitQuote quotes an argument as systemd reads it.
func unitQuote(arg string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(arg) + `"`
}

// installAgentUnit writes the unit and starts it.
func installAgentUnit(cmd *cobra.Command, dir string) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	if err := os.WriteFile(agentUnitFile, []byte(agentUnitText(executable, dir, cmd.Flags())), 0o644); err != nil {
		return fmt.Errorf("write unit: %w", err)
	}
	if err := systemctl("daemon-reload"); err != nil {
		return err
	}
	if err := systemctl("enable", "--now", agentUnit); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "joined; %s runs the agent: journalctl -u %s\n", agentUnit, agentUnit)
	return nil
}

// removeAgentUnit stops and removes the unit, if there is one.
func removeAgentUnit() error {
	if _, err := os.Stat(agentUnitFile); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := systemctl("disable", "--now", agentUnit); err != nil {
		return err
	}
	if err := os.Remove(agentUnitFile); err != nil {
		return fmt.Errorf("remove unit: %w", err)
	}
	return systemctl("daemon-reload")
}

func systemctl(args ...string) error {
	if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
