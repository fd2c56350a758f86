package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// GatewayOptions say how to measure engines for Gateways.
type GatewayOptions struct {
	Options
	Routes  []int    // how many, growing; at the last, requests are measured
	Engines []string // of `fairway gateway`: one
	Rounds  int      // turns that each takes with requests
	Samples int      // changes of each kind
}

// gatewaySection is that of the report.
const gatewaySection = "gateways"

// Gateways measures engines for Gateways, beside bare haproxy and nginx: what a
// request and a TLS handshake cost, how soon a change is in force, and memory.
func Gateways(ctx context.Context, o GatewayOptions) (err error) {
	if len(o.Engines) != 1 {
		return fmt.Errorf("--engine %v: one a run, since all listen at the ports that the Gateway's Service names", o.Engines)
	}
	if o.Section == "" {
		o.Section = gatewaySection
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "fairway-bench-"); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	r := &run{options: o.Options, results: &results{}, began: time.Now()}
	if r.site, err = newSite(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if r.api, err = startAPI(ctx, r.site, o.Fairway, filepath.Join(o.Dir, "server")); err != nil {
		return err
	}
	r.api.progress = o.Progress
	g := &gateways{run: r, wanted: o}
	if err := g.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.answers.close()) }()
	slices.Sort(o.Routes)
	var failed []error
	for i, n := range o.Routes {
		if err := g.stage(ctx, n, i == len(o.Routes)-1); err != nil {
			failed = append(failed, fmt.Errorf("measure %d routes: %w", n, err))
		}
	}
	return errors.Join(append(failed, r.results.write(o.Options, time.Since(r.began)))...)
}

// gateways is a measurement of engines under way.
type gateways struct {
	*run
	wanted      GatewayOptions
	answers     *answers
	certificate *gatewayCertificate
	routes      int // that the API has
	hot         []*service
	probes      []*service // of changes: two that take turns, one whose endpoints change
	ports       map[int32]uint16
	size        size
}

// stage measures at a number of routes.
func (g *gateways) stage(ctx context.Context, n int, whole bool) error {
	g.size = size{n, 1}
	g.options.Log.Info("filling the API", "routes", n)
	if err := errors.Join(g.addRoutes(ctx, n-g.routes), g.settled(ctx)); err != nil {
		return err
	}
	var errs []error
	var all []*contender
	for _, engine := range g.wanted.Engines {
		c, err := g.startEngine(ctx, engine)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", engine, err))
			continue
		}
		defer func() { errs = append(errs, c.stop()) }()
		all = append(all, c)
		g.options.Log.Info("measuring changes", "engine", engine, "routes", n)
		errs = append(errs, g.measureChanges(ctx, c), g.measureResident(ctx, c))
		if !whole || len(g.wanted.Engines) > 1 {
			errs = append(errs, c.stop())
		}
	}
	if whole {
		errs = append(errs, g.measureRequests(ctx, all))
	}
	return errors.Join(errs...)
}

// measureRequests has all take turns.
func (g *gateways) measureRequests(ctx context.Context, all []*contender) error {
	var errs []error
	for _, c := range all {
		if c.stopped {
			errs = append(errs, g.again(ctx, c))
		}
	}
	for name, start := range map[string]func(context.Context) (*contender, error){"haproxy": g.startHAProxy, silentName: g.startSilent, againName: g.startAgain, "nginx": g.startNginx} {
		if _, err := exec.LookPath(strings.Fields(name)[0]); err != nil {
			g.options.Log.Info("not measured", "program", name, "reason", err)
			continue
		}
		c, err := start(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		defer func() { errs = append(errs, c.stop()) }()
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *contender) int { return placeOf(a.name) - placeOf(b.name) })
	errs = append(errs, g.takeTurns(ctx, "http", all, g.requests))
	all = slices.DeleteFunc(slices.Clone(all), func(c *contender) bool { return c.name == silentName || c.name == againName }) // which make them as it does
	errs = append(errs, g.takeTurns(ctx, "handshakes", all, g.handshakes))
	return errors.Join(errs...)
}

// takeTurns has each do its work in short slices, so that what disturbs one
// disturbs all, and records what a second of their processor time gave.
func (g *gateways) takeTurns(ctx context.Context, row string, all []*contender, work func(context.Context, *contender) (int, error)) error {
	done, used := map[*contender]int{}, map[*contender]time.Duration{}
	for round := range g.wanted.Rounds + 1 {
		for _, c := range all {
			before, err := c.process.usage.cpu()
			if err != nil {
				return err
			}
			n, err := work(ctx, c)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", row, c.name, err)
			}
			after, err := c.process.usage.cpu()
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				done[c] += n
				used[c] += after - before
			}
		}
	}
	rate := func(c *contender) float64 { return float64(done[c]) / used[c].Seconds() }
	bare := slices.IndexFunc(all, func(c *contender) bool { return c.name == "haproxy" })
	for _, c := range all {
		text := fmt.Sprintf("%.0f/s, %.1f µs each", rate(c), 1e6/rate(c))
		if bare >= 0 {
			text = fmt.Sprintf("%.2f of haproxy: %s", rate(c)/rate(all[bare]), text)
		}
		g.results.add(row, g.size, c.name, text)
		g.options.Log.Info("measured", "row", row, "contender", c.name, "result", text)
	}
	return nil
}

// measureResident reads what an engine has resident.
func (g *gateways) measureResident(ctx context.Context, c *contender) error {
	pause(ctx, settle)
	m, err := c.process.usage.memory()
	if err != nil {
		return err
	}
	g.results.add("resident", g.size, c.name, m.String())
	g.options.Log.Info("measured", "row", "memory", "contender", c.name, "result", m)
	return nil
}
