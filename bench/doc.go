// Package bench measures Fairway: how soon a change is in force, what it costs,
// and what the data plane gives, at up to tens of thousands of Services. API
// server and agent are processes of their own, the agent's in a node made of a
// network namespace; endpoints are addresses that really answer, and latencies
// end with a connection that reached one of them.
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
	Only      []string // parts; empty for all
	Modes     []string // see Modes; empty for all that this kernel has
	Services  int      // with Endpoints, the one size to measure at; 0 for each part's own
	Endpoints int
	Changes   int    // endpoint changes of the soak in nftables mode; others get a tenth
	Out       string // a Markdown file to write the tables into; "" prints them
	Dir       string // where the API server keeps its data; "" is a temporary directory
	Stdout    io.Writer
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
	r := &run{options: o, results: &results{}}
	defer func() { err = errors.Join(err, r.close()) }()
	began := time.Now()
	if err := r.open(ctx); err != nil {
		return err
	}
	// What can't be measured is no reason to lose what was and what comes after.
	var failed []error
	for _, s := range plan {
		if err := r.stage(ctx, s); err != nil {
			failed = append(failed, fmt.Errorf("measure %s: %w", s.size, err))
		}
	}
	return errors.Join(append(failed, r.results.write(o, time.Since(began)))...)
}

// run is a benchmark under way.
type run struct {
	options Options
	site    *site
	api     *api
	results *results
}

func (r *run) open(ctx context.Context) (err error) {
	if r.site, err = newSite(); err != nil {
		return err
	}
	r.api, err = startAPI(ctx, r.site, filepath.Join(r.options.Dir, "server"))
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

// stage fills the API to a size and measures all modes at it.
func (r *run) stage(ctx context.Context, s stage) error {
	r.options.Log.Info("fill the API", "size", s.size.String())
	if err := r.fill(ctx, s); err != nil {
		return err
	}
	var failed []error
	for _, m := range s.modes {
		if ctx.Err() != nil {
			break
		}
		if err := roomFor(m, s.size); err != nil {
			r.options.Log.Warn("not measured", "size", s.size.String(), "mode", m.name, "because", err)
			if s.has("start") {
				r.results.add("start", s.size, m.name, "not measured: "+err.Error())
			}
			continue
		}
		began := time.Now()
		if err := r.mode(ctx, s, m); err != nil {
			r.options.Log.Error("not measured", "size", s.size.String(), "mode", m.name, "err", err)
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		r.options.Log.Info("measured", "size", s.size.String(), "mode", m.name, "in", time.Since(began).Round(time.Millisecond))
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// mode measures one mode at one size, from the agent's start to its removal.
func (r *run) mode(ctx context.Context, s stage, m mode) (err error) {
	p := &patient{run: r, stage: s, mode: m}
	if p.agent, err = startAgent(ctx, r, m); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.agent.remove(ctx)) }()
	if err := p.started(ctx); err != nil {
		return err
	}
	for _, part := range parts() {
		if part.measure == nil || !s.has(part.name) {
			continue
		}
		if err := part.measure(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if err := p.agent.alive(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// patient is one mode's agent under measurement.
type patient struct {
	*run
	stage stage
	mode  mode
	agent *agentProcess
}

func (p *patient) record(row, format string, args ...any) {
	p.results.add(row, p.stage.size, p.mode.name, fmt.Sprintf(format, args...))
	p.options.Log.Info("result", "row", row, "size", p.stage.size.String(), "mode", p.mode.name, "is", fmt.Sprintf(format, args...))
}
