//go:build !agentonly

package cluster

import (
	"fmt"
	"io"
	"os"

	"github.com/fairway-net/fairway/agent/cleanup"
	"github.com/fairway-net/fairway/cmd/manual"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/deploy/install"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/internal/kernel"
)

func Install() *cobra.Command {
	c := &cobra.Command{
		Use:   "install",
		Short: "Install this program on the machine, as a service of systemd with manual pages and completion",
		Long: `Install this program on the machine: the binary in /usr/local/bin, a systemd unit
that starts now and at each boot, manual pages, completion for bash, zsh and fish,
a link kubectl-fairway, and a link kubectl if the machine has no kubectl.

Options of the role follow it, and are kept in /etc/default/fairway-ROLE. Without
options those of an earlier installation stay: so the same command installs a
newer version in place. What forwards in the kernel goes on meanwhile. With
--gateway, a server or an agent has a second unit, which serves Gateways and
Ingresses; with up that is a part of it, as --gateway-engine says.`,
		Args: cobra.NoArgs,
	}
	for role, add := range map[string]func(*pflag.FlagSet){
		"server": config.NewServer().Add, "agent": config.NewAgent().Add, "up": config.NewUp().Add, "gateway": new(config.Gateway).Add,
	} {
		c.AddCommand(installRoleCommand(role, add))
	}
	return c
}

// installRoleCommand takes the flags of the role, which its own may not hide.
func installRoleCommand(role string, add func(*pflag.FlagSet)) *cobra.Command {
	var noStart bool
	root := ""
	c := &cobra.Command{Use: role, Short: "Install `fairway " + role + "` as a service, and start it", Args: cobra.NoArgs}
	c.Flags().BoolVar(&noStart, "no-start", false, "install it, and start nothing")
	c.Flags().StringVar(&root, "root", "", "a folder to install into instead of /; nothing is started")
	gateway := ""
	if role == "server" || role == "agent" { // up has flags of its own, and serves by itself
		c.Flags().StringVar(&gateway, "gateway", "", "serve Gateways and Ingresses, too, by a unit of its own: native or haproxy (which must be installed); native if nothing is said")
		c.Flags().Lookup("gateway").NoOptDefVal = engines.Native
	}
	add(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		o := installation(cmd, root)
		o.Role, o.NoStart, o.Args = role, noStart, install.Args(cmd.Flags(), append([]string{"no-start", "root", config.TokenFlag, config.TokenFileFlag}, notOfRole(role)...)...)
		if token := cmd.Flags().Lookup(config.TokenFlag); token != nil {
			o.Token = token.Value.String()
		}
		if gateway != "" {
			if err := engines.Check(gateway); err != nil {
				return fmt.Errorf("--gateway: %w", err)
			}
			o.Gateway = []string{"--engine=" + gateway}
		}
		if kubeconfig := cmd.Flags().Lookup("kubeconfig"); role == "gateway" && kubeconfig.Changed {
			o.Credential = kubeconfig.Value.String()
		}
		executable, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own executable: %w", err)
		}
		o.Program = executable
		return install.Install(o)
	}
	return c
}

// notOfRole are flags that are no options of the role's unit.
func notOfRole(role string) []string {
	switch role {
	case "up":
		return nil
	case "gateway":
		return []string{"kubeconfig"} // its unit has it as a credential of systemd
	}
	return []string{"gateway"}
}

func installation(cmd *cobra.Command, root string) install.Options {
	return install.Options{
		Root: root, Out: cmd.OutOrStdout(),
		Manual: func(folder string) error { return manual.Write(cmd.Root(), folder) },
		Completion: func(shell string, out io.Writer) error {
			switch root := cmd.Root(); shell {
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			default:
				return root.GenBashCompletionV2(out, true)
			}
		},
	}
}

func Uninstall() *cobra.Command {
	var purge bool
	root, stateDir := "", ""
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Undo install: stop the unit, remove what is in the kernel, and the files",
		Long: `Undo install: stop the unit, remove what is in the kernel, and then the files that
install made. Files that were changed since stay and are named.

Data and options stay, for another installation; --purge removes them too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return install.Uninstall(installation(cmd, root), purge, func() error {
				if root != "" {
					return nil
				}
				if err := cleanup.RefuseBesideProxy(true); err != nil {
					return err
				}
				options := kernel.Options{StateDir: stateDir, KeepKubeProxy: true}
				return (&cleanup.Job{Options: options, Out: cmd.OutOrStdout()}).Run(cmd.Context())
			})
		},
	}
	c.Flags().BoolVar(&purge, "purge", false, "remove options, certificates and everything that the API stored, too")
	c.Flags().StringVar(&root, "root", "", "the folder that was installed into; what is in the kernel stays")
	c.Flags().StringVar(&stateDir, "state-dir", kernel.DefaultStateDir, "the agent's --state-dir")
	return c
}
