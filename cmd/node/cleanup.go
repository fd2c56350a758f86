package node

import (
	"github.com/fairway-net/fairway/agent/cleanup"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/internal/kernel"
)

func Cleanup() *cobra.Command {
	job := cleanup.Job{}
	var after cleanup.KubeProxy
	var force bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that any mode left on this machine, and on request what kube-proxy left",
		Long: `Remove everything that any mode left on this machine, and list it.

Beside a running agent or kube-proxy nothing is removed, unless with --force.
If a mode's leftovers can't be looked for, for lack of rights or programs, the
exit status is 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kubeProxyRuns := cmd.Flags().Changed("after-kube-proxy") || job.Options.KeepKubeProxy
			job.Out = cmd.OutOrStdout()
			if cmd.Flags().Changed("after-kube-proxy") { // the agent may run until kube-proxy does
				mode, err := after.Wait(cmd.Context(), job.Out)
				if err != nil {
					return err
				}
				job.Keep = cleanup.SharedWith(mode)
			} else if job.Options.KeepKubeProxy {
				job.Keep = cleanup.SharedWith("")
			}
			if !force && !job.DryRun {
				if err := cleanup.RefuseBesideProxy(kubeProxyRuns); err != nil {
					return err
				}
			}
			job.Options.KeepKubeProxy = !job.KubeProxys
			job.HandOver = kubeProxyRuns
			return job.Run(cmd.Context())
		},
	}
	c.Flags().StringVar(&job.Options.StateDir, "state-dir", kernel.DefaultStateDir, "the agent's --state-dir")
	c.Flags().StringSliceVar(&job.Only, "mode", nil, "remove what these modes left, and nothing else")
	c.Flags().BoolVar(&job.Options.KeepKubeProxy, "keep-kube-proxy", false, "kube-proxy runs again: leave what has its names in the modes iptables and ipvs, and end no connection")
	c.Flags().BoolVar(&job.KubeProxys, "kube-proxy", false, "remove what kube-proxy left, too")
	c.Flags().BoolVar(&job.DryRun, "dry-run", false, "list every object that would be removed, and remove nothing")
	c.Flags().BoolVar(&force, "force", false, "remove it although an agent or kube-proxy is running, which then puts it back or stops forwarding")
	addKubeProxy(c.Flags(), &after)
	c.MarkFlagsMutuallyExclusive("kube-proxy", "keep-kube-proxy")
	c.MarkFlagsMutuallyExclusive("kube-proxy", "after-kube-proxy")
	config.AddCgroup(c.Flags(), &job.Options.Cgroup)
	return c
}

// addKubeProxy adds the flags of a kube-proxy that is waited for.
func addKubeProxy(flags *pflag.FlagSet, k *cleanup.KubeProxy) {
	const own = "127.0.0.1:10249"
	flags.StringVar(&k.Address, "after-kube-proxy", own, "first wait until kube-proxy has all Services in force, as its metrics at this `address` tell; leave what its mode uses")
	flags.Lookup("after-kube-proxy").NoOptDefVal = own
	flags.StringVar(&k.Config, "kube-proxy-config", "", "kube-proxy's configuration `file`, which may give the metrics another address; it needn't be there")
}
