package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/fault"
	"github.com/fairway-net/fairway/lab/topology"
)

// event is what is measured: something that happens to the node that a client's
// flow goes through, or that is asked of it.
type event struct {
	name, what, goal string
	ways             []string
	most             int           // repetitions; 0 for as many as are asked for
	limit            time.Duration // of the gap at the 99th percentile; 0 for none
	nothingLost      bool          // neither packets nor connections
	noConnectionLost bool
	anew             bool // each time with connections of which no node knows
	measure          func(context.Context, *announceLab, event) (string, error)
	happen, undo     func(ctx context.Context, l *announceLab, node string) error
}

// events are all, in the order in which they are measured.
func events() []event {
	all, kept, cut := []string{wayLayer2, wayRouter, wayWatched}, []string{wayLayer2, wayRouter}, []string{wayLayer2, wayWatched}
	return []event{
		{name: "nothing", what: "nothing happens", ways: all, most: 3, measure: disturb, happen: doNothing, undo: doNothing},
		{name: "drain", what: "planned move: `fairway drain NODE`", goal: "0 connections lost, 0 refused", ways: kept,
			noConnectionLost: true, anew: true, measure: disturb, happen: drain, undo: undrain},
		{name: "kill", what: "the agent is killed (`kill -9`)", goal: "0 packets lost", ways: kept,
			nothingLost: true, measure: disturb, happen: signalAgent(unix.SIGKILL), undo: doNothing},
		{name: "restart", what: "the agent restarts", goal: "0 packets lost", ways: kept,
			nothingLost: true, measure: disturb, happen: signalAgent(unix.SIGTERM), undo: doNothing},
		{name: "link", what: "the node's link loses its carrier", goal: "100 ms", ways: cut,
			limit: 100 * time.Millisecond, measure: disturb, happen: suffer(fault.Link), undo: mend},
		{name: "link", what: "the node's link loses its carrier", goal: "100 ms", ways: []string{wayAttached},
			limit: 100 * time.Millisecond, measure: disturb, happen: pull, undo: plugIn},
		{name: "power", what: "the node loses power", goal: "p99 500 ms by L2", ways: []string{wayLayer2},
			limit: 500 * time.Millisecond, measure: disturb, happen: suffer(fault.Power), undo: mend},
		{name: "power", what: "the node loses power", goal: "p99 300 ms with BFD", ways: []string{wayWatched},
			limit: 300 * time.Millisecond, measure: disturb, happen: suffer(fault.Power), undo: mend},
		{name: "power", what: "the node loses power", goal: "none without BFD: a hold time of 9 s", ways: []string{wayRouter}, most: 2,
			measure: disturb, happen: suffer(fault.Power), undo: mend},
		{name: "service", what: "new Service to first answer outside", goal: "20 ms", ways: kept,
			limit: 20 * time.Millisecond, measure: measureNewServices},
		{name: "routes", what: "addresses announced and withdrawn", goal: "10,000 in 1 s and 100 ms", ways: []string{wayRouter}, most: 5,
			measure: measureRoutes},
	}
}

func announceNames() []string {
	var names []string
	for _, e := range events() {
		if !slices.Contains(names, e.name) {
			names = append(names, e.name)
		}
	}
	return names
}

// AnnounceEvents lists the events, for help texts.
func AnnounceEvents() string {
	var b strings.Builder
	seen := ""
	for _, e := range events() {
		if e.name != seen {
			fmt.Fprintf(&b, "  %-8s %s\n", e.name, e.what)
		}
		seen = e.name
	}
	return b.String()
}

func doNothing(context.Context, *announceLab, string) error { return nil }

func drain(ctx context.Context, l *announceLab, node string) error {
	// With --wait it would return when the last connection has ended.
	return l.options.fairway(ctx, "drain", node, "--kubeconfig", lab.Kubeconfig(announceLabName))
}

func undrain(ctx context.Context, l *announceLab, node string) error {
	return l.options.fairway(ctx, "drain", node, "--undo", "--kubeconfig", lab.Kubeconfig(announceLabName))
}

func suffer(kind fault.Kind) func(context.Context, *announceLab, string) error {
	return func(ctx context.Context, _ *announceLab, node string) error {
		return lab.BreakNode(ctx, announceLabName, node, kind)
	}
}

func mend(ctx context.Context, _ *announceLab, node string) error {
	return lab.MendNode(ctx, announceLabName, node)
}

// signalAgent has a node's agent end; the lab starts it again.
func signalAgent(signal unix.Signal) func(context.Context, *announceLab, string) error {
	return func(_ context.Context, _ *announceLab, node string) error {
		dir, err := topology.FindCgroup(announceLabName, node+"/agent")
		if err != nil {
			return err
		}
		list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return fmt.Errorf("find the agent of %s: %w", node, err)
		}
		var errs []error
		for _, text := range strings.Fields(string(list)) {
			pid, err := strconv.Atoi(text)
			if err == nil {
				err = unix.Kill(pid, signal)
			}
			errs = append(errs, err)
		}
		if len(errs) == 0 {
			return fmt.Errorf("node %s has no agent", node)
		}
		return errors.Join(errs...)
	}
}
