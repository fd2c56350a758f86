// Package cleanup removes what agents of any mode left on a machine, and on request what
// kube-proxy left; beside a running one nothing.
//
//	cleanup.go    what is removed, mode by mode, and what else agents leave
//	running.go    who forwards for this network namespace
//	kubeproxy.go  a kube-proxy that shall be in step first
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/announce/l2/responder"
	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dns/redirect"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/legacytrace"
)

// Job is what is to be removed, and how.
type Job struct {
	Options    kernel.Options
	Only       []string // modes; nil is all
	Keep       []string // modes whose objects a running kube-proxy has made its own
	KubeProxys bool     // what kube-proxy left, too
	HandOver   bool     // kube-proxy is in force: connections go on
	DryRun     bool
	Out        io.Writer
}

// SharedWith are the modes whose kernel objects a kube-proxy in a mode may have
// made its own; "" is any mode.
func SharedWith(mode string) []string {
	var shared []string
	for _, k := range dataplane.Kinds() {
		if slices.Contains(k.KubeProxyModes, mode) || mode == "" && len(k.KubeProxyModes) > 0 {
			shared = append(shared, k.Name)
		}
	}
	return shared
}

// Run removes what modes left, and says what that was.
func (j *Job) Run(ctx context.Context) error {
	var failed []error
	for _, mode := range j.Only {
		if _, err := dataplane.Find(mode); err != nil {
			return fmt.Errorf("--mode: %w", err)
		}
	}
	for _, kind := range dataplane.Kinds() {
		if j.Only != nil && !slices.Contains(j.Only, kind.Name) {
			continue
		}
		if slices.Contains(j.Keep, kind.Name) {
			j.say(kind, "left for kube-proxy")
			continue
		}
		if err := j.remove(ctx, kind); err != nil {
			j.say(kind, fmt.Sprint("failed: ", err))
			failed = append(failed, fmt.Errorf("clean up %s mode: %w", kind.Name, err))
		}
	}
	if j.Only == nil {
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
func (j *Job) removeDNS() error {
	there, err := redirect.Leftovers()
	did := "removed "
	if j.DryRun {
		did = "would remove "
	} else {
		err = errors.Join(err, redirect.Cleanup())
	}
	if err != nil {
		return err
	}
	for _, what := range there {
		fmt.Fprintf(j.Out, "DNS: %s%s\n", did, what)
	}
	return nil
}

// restoreLogger puts back a setting that a killed trace has left.
func (j *Job) restoreLogger() error {
	restore, did := legacytrace.Sweep, "put back"
	if j.DryRun {
		restore, did = legacytrace.Leftovers, "would put back"
	}
	was, err := restore()
	if was != "" {
		fmt.Fprintf(j.Out, "trace: %s net.netfilter.nf_log: %s\n", did, was)
	}
	return err
}

// removeAnswers ends the kernel's answers for addresses that an agent announced.
func (j *Job) removeAnswers() error {
	answers, leads, did := responder.Leftovers, steering.Leftovers, "would remove"
	if !j.DryRun {
		none := func(int) bool { return false }
		answers, did = func() ([]string, error) { return responder.Sweep(none) }, "removed"
		leads = func() ([]string, error) { return steering.Sweep(none) }
	}
	interfaces, err := answers()
	for _, name := range interfaces {
		fmt.Fprintf(j.Out, "announcing: %s the program that answers ARP and NDP on %s\n", did, name)
	}
	interfaces, ofLeads := leads()
	for _, name := range interfaces {
		fmt.Fprintf(j.Out, "announcing: %s the program that leads packets to the node of their connection on %s\n", did, name)
	}
	return errors.Join(err, ofLeads)
}

func (j *Job) say(kind dataplane.Kind, what string) {
	fmt.Fprintf(j.Out, "%s: %s\n", kind.Name, what)
}

// remove removes what one mode left.
func (j *Job) remove(ctx context.Context, kind dataplane.Kind) (err error) {
	plane, err := kind.New(j.Options)
	switch {
	case kind.LeftNothing(err):
		j.say(kind, fmt.Sprint("nothing there: ", err))
		return nil
	case kernel.IsNotPermitted(err):
		return fmt.Errorf("could not look for what it left: %w", err)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, plane.Close()) }()
	there, err := plane.Read(ctx, kernel.Query{Objects: true})
	if err != nil && j.DryRun {
		return fmt.Errorf("could not look for what it left: %w", err)
	}
	if len(there.Objects) > 0 && !kind.Made(there.Objects) && !j.KubeProxys {
		j.say(kind, summary(there.Objects)+" left, since they are kube-proxy's (--kube-proxy removes them)")
		return nil
	}
	if j.DryRun {
		for _, o := range there.Objects {
			j.say(kind, "would remove "+o.Kind+" "+o.Name)
		}
		return nil
	}
	how := kernel.EndConnections
	if j.HandOver {
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
