package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/announce/l2/handoff"
	"github.com/fairway-net/fairway/announce/l2/responder"
	"github.com/fairway-net/fairway/announce/strays/ring"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dns/lease"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/legacytrace"
)

func cleanupCommand() *cobra.Command {
	job := cleanupJob{}
	var after kubeProxy
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
			kubeProxyRuns := cmd.Flags().Changed("after-kube-proxy") || job.options.KeepKubeProxy
			job.out = cmd.OutOrStdout()
			if cmd.Flags().Changed("after-kube-proxy") { // the agent may run until kube-proxy does
				mode, err := after.wait(cmd.Context(), job.out)
				if err != nil {
					return err
				}
				job.keep = sharedWith(mode)
			} else if job.options.KeepKubeProxy {
				job.keep = sharedWith("")
			}
			if !force && !job.dryRun {
				if err := refuseBesideProxy(kubeProxyRuns); err != nil {
					return err
				}
			}
			job.options.KeepKubeProxy = !job.kubeProxys
			job.handOver = kubeProxyRuns
			return job.run(cmd.Context())
		},
	}
	c.Flags().StringVar(&job.options.StateDir, "state-dir", kernel.DefaultStateDir, "the agent's --state-dir")
	c.Flags().StringSliceVar(&job.only, "mode", nil, "remove what these modes left, and nothing else")
	c.Flags().BoolVar(&job.options.KeepKubeProxy, "keep-kube-proxy", false, "kube-proxy runs again: leave what has its names in the modes iptables and ipvs, and end no connection")
	c.Flags().BoolVar(&job.kubeProxys, "kube-proxy", false, "remove what kube-proxy left, too")
	c.Flags().BoolVar(&job.dryRun, "dry-run", false, "list every object that would be removed, and remove nothing")
	c.Flags().BoolVar(&force, "force", false, "remove it although an agent or kube-proxy is running, which then puts it back or stops forwarding")
	after.add(c.Flags())
	c.MarkFlagsMutuallyExclusive("kube-proxy", "keep-kube-proxy")
	c.MarkFlagsMutuallyExclusive("kube-proxy", "after-kube-proxy")
	config.AddCgroup(c.Flags(), &job.options.Cgroup)
	return c
}

// cleanupJob is what is to be removed, and how.
type cleanupJob struct {
	options    kernel.Options
	only       []string // modes; nil is all
	keep       []string // modes whose objects a running kube-proxy has made its own
	kubeProxys bool     // what kube-proxy left, too
	handOver   bool     // kube-proxy is in force: connections go on
	dryRun     bool
	out        io.Writer
}

// sharedWith are the modes whose kernel objects a kube-proxy in a mode may have
// made its own; "" is any mode.
func sharedWith(mode string) []string {
	var shared []string
	for _, k := range dataplane.Kinds() {
		if slices.Contains(k.KubeProxyModes, mode) || mode == "" && len(k.KubeProxyModes) > 0 {
			shared = append(shared, k.Name)
		}
	}
	return shared
}

// run removes what modes left, and says what that was.
func (j *cleanupJob) run(ctx context.Context) error {
	var failed []error
	for _, mode := range j.only {
		if _, err := dataplane.Find(mode); err != nil {
			return fmt.Errorf("--mode: %w", err)
		}
	}
	for _, kind := range dataplane.Kinds() {
		if j.only != nil && !slices.Contains(j.only, kind.Name) {
			continue
		}
		if slices.Contains(j.keep, kind.Name) {
			j.say(kind, "left for kube-proxy")
			continue
		}
		if err := j.remove(ctx, kind); err != nil {
			j.say(kind, fmt.Sprint("failed: ", err))
			failed = append(failed, fmt.Errorf("clean up %s mode: %w", kind.Name, err))
		}
	}
	if j.only == nil {
		if err := j.removeDNS(); err != nil {
			failed = append(failed, fmt.Errorf("clean up DNS: %w", err))
		}
		if err := j.removeAnswers(); err != nil {
			failed = append(failed, fmt.Errorf("clean up announcing: %w", err))
		}
		if err := j.restoreLogger(); err != nil {
			failed = append(failed, fmt.Errorf("clean up after traces: %w", err))
		}
	}
	return errors.Join(failed...)
}

// removeDNS removes what leads questions to an agent's DNS.
func (j *cleanupJob) removeDNS() error {
	there, err := lease.Leftovers()
	did := "removed "
	if j.dryRun {
		did = "would remove "
	} else {
		err = errors.Join(err, lease.Cleanup())
	}
	if err != nil {
		return err
	}
	for _, what := range there {
		fmt.Fprintf(j.out, "DNS: %s%s\n", did, what)
	}
	return nil
}

// restoreLogger puts back a setting that a killed trace has left.
func (j *cleanupJob) restoreLogger() error {
	restore, did := legacytrace.Sweep, "put back"
	if j.dryRun {
		restore, did = legacytrace.Leftovers, "would put back"
	}
	was, err := restore()
	if was != "" {
		fmt.Fprintf(j.out, "trace: %s net.netfilter.nf_log: %s\n", did, was)
	}
	return err
}

// removeAnswers ends the kernel's answers for addresses that an agent announced.
func (j *cleanupJob) removeAnswers() error {
	answers, handoffs, rings, did := responder.Leftovers, handoff.Leftovers, ring.Leftovers, "would remove"
	if !j.dryRun {
		none := func(int) bool { return false }
		answers, did = func() ([]string, error) { return responder.Sweep(none) }, "removed"
		handoffs = func() ([]string, error) { return handoff.Sweep(none) }
		rings = func() ([]string, error) { return ring.Sweep(none) }
	}
	interfaces, err := answers()
	for _, name := range interfaces {
		fmt.Fprintf(j.out, "announcing: %s the program that answers ARP and NDP on %s\n", did, name)
	}
	interfaces, ofHandoffs := handoffs()
	for _, name := range interfaces {
		fmt.Fprintf(j.out, "announcing: %s the program that leads connections to another node on %s\n", did, name)
	}
	interfaces, ofRings := rings()
	for _, name := range interfaces {
		fmt.Fprintf(j.out, "announcing: %s the program that leads packets to the node of their connection on %s\n", did, name)
	}
	return errors.Join(err, ofHandoffs, ofRings)
}

func (j *cleanupJob) say(kind dataplane.Kind, what string) {
	fmt.Fprintf(j.out, "%s: %s\n", kind.Name, what)
}

// remove removes what one mode left.
func (j *cleanupJob) remove(ctx context.Context, kind dataplane.Kind) (err error) {
	plane, err := kind.New(j.options)
	switch {
	case kernel.IsNotPermitted(err):
		return fmt.Errorf("could not look for what it left: %w", err)
	case kernel.IsMissing(err): // then it can have left nothing
		j.say(kind, fmt.Sprint("nothing there: ", err))
		return nil
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, plane.Close()) }()
	there, err := plane.Read(ctx, kernel.Query{Objects: true})
	if err != nil && j.dryRun {
		return fmt.Errorf("could not look for what it left: %w", err)
	}
	if len(there.Objects) > 0 && !kind.Made(there.Objects) && !j.kubeProxys {
		j.say(kind, summary(there.Objects)+" left, since they are kube-proxy's (--kube-proxy removes them)")
		return nil
	}
	if j.dryRun {
		for _, o := range there.Objects {
			j.say(kind, "would remove "+o.Kind+" "+o.Name)
		}
		return nil
	}
	how := kernel.EndConnections
	if j.handOver {
		how = kernel.HandOver
	}
	// Also where nothing was found: what only supports the objects may be there.
	if err := plane.Remove(ctx, how); err != nil {
		return err
	}
	if len(there.Objects) == 0 {
		j.say(kind, "clean")
	} else {
		j.say(kind, "removed "+summary(there.Objects))
	}
	return nil
}

// summary counts objects by kind: "3 chains, 17 elements".
func summary(objects []kernel.Object) string {
	counts := map[string]int{}
	for _, o := range objects {
		counts[o.Kind]++
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d of kind %s", counts[kind], kind))
	}
	return strings.Join(list, ", ")
}
