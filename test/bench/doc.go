// Package bench measures Fairway: how soon a change is in force, what it costs,
// and what the data plane gives, at up to tens of thousands of Services. API
// server and agent are processes of their own, the agent's in a node made of a
// network namespace; endpoints are addresses that really answer, and latencies
// end with a connection that reached one of them. The files announce*.go measure
// what clients notice when another node begins to announce an address.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Options say what to measure and where to put it.
type Options struct {
	Only      []string // parts; empty for all that take part in a whole run
	Modes     []string // see Modes; empty for all that this kernel has
	Services  int      // with Endpoints, the one size to measure at; 0 for each part's own
	Endpoints int
	Changes   int    // endpoint changes of the soak in nftables mode; others get a tenth
	Out       string // a Markdown file to write the tables into; "" prints them
	Section   string // which tables of that file, if not the main ones
	// Kubeconfig is of an API server to measure with; "" starts one.
	Kubeconfig string
	Fairway    string // the program that is measured
	// Agent is the program whose agent is measured, such as the image's; "" is Fairway.
	Agent string
	// KubeProxy is the program of that name, to be measured in the same way as
	// each mode that it has, too; "" for not at all.
	KubeProxy string
	Dir       string // where the API server keeps its data; "" is a temporary directory
	Stdout    io.Writer
	Progress  io.Writer // where it is said how far a long part is; nil for nowhere
	Version   string
	Log       *slog.Logger
}

// labName is that of the namespaces and cgroups.
const labName = "bench"

// Run measures and reports.
func Run(ctx context.Context, o Options) (err error) {
	plan, err := newPlan(&o)
	if err != nil {
		return err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "fairway-bench-"); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	r := &run{options: o, results: &results{}, began: time.Now()}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(ctx); err != nil {
		return err
	}
	for _, s := range plan {
		r.steps += 1 + len(s.modes)
	}
	// What can't be measured is no reason to lose what was and what comes after.
	var failed []error
	for _, s := range plan {
		if err := r.stage(ctx, s); err != nil {
			failed = append(failed, fmt.Errorf("measure %s: %w", s.size, err))
		}
	}
	return errors.Join(append(failed, r.results.write(o, time.Since(r.began)))...)
}

// run is a benchmark under way.
type run struct {
	options Options
	site    *site
	api     *api
	results *results
	began   time.Time
	step    int // how many of steps have begun
	steps   int // fillings of the API, and modes at a size
}

func (r *run) open(ctx context.Context) (err error) {
	if r.site, err = newSite(); err != nil {
		return err
	}
	if r.options.Kubeconfig != "" {
		r.api, err = useAPI(ctx, r.site, r.options.Kubeconfig, r.options.Dir)
	} else {
		r.api, err = startAPI(ctx, r.site, r.options.Fairway, filepath.Join(r.options.Dir, "server"))
	}
	if err == nil {
		r.api.progress = r.options.Progress
	}
	return err
}

func (r *run) close() error {
	var errs []error
	if r.api != nil {
		errs = append(errs, r.api.stop())
	}
	if r.site != nil {
		errs = append(errs, r.site.remove())
	}
	return errors.Join(errs...)
}
