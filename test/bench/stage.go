package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// next tells how far the run is.
func (r *run) next(what string, attributes ...any) {
	r.step++
	r.options.Log.Info(what, append([]any{"step", fmt.Sprintf("%d of %d", r.step, r.steps)}, attributes...)...)
}

// stage fills the API to a size and measures all modes at it.
func (r *run) stage(ctx context.Context, s stage) error {
	r.next("fill the API", "size", s.size.String())
	if err := r.fill(ctx, s); err != nil {
		r.step += len(s.modes)
		return fmt.Errorf("fill the API: %w", err)
	}
	var failed []error
	for _, m := range s.modes {
		if ctx.Err() != nil {
			break
		}
		r.next("measure", "size", s.size.String(), "mode", m.name)
		if err := roomFor(m, s.size); err != nil {
			r.options.Log.Warn("not measured", "size", s.size.String(), "mode", m.name, "reason", err)
			if s.has("start") {
				r.results.add("start", s.size, m.name, "not measured: "+err.Error())
			}
			continue
		}
		began := time.Now()
		if err := r.measureMode(ctx, s, m); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
		}
		r.options.Log.Info("done", "size", s.size.String(), "mode", m.name, "took", time.Since(began).Round(time.Millisecond))
		if r.options.Out != "" { // a run that is broken off has not been for nothing
			failed = append(failed, r.results.write(r.options, time.Since(r.began)))
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// partTimeout bounds each part but those that are only measured when named.
const partTimeout = 5 * time.Minute

// measureMode measures one data plane mode at one size, from the agent's start to its
// removal. If a part fails, the next ones are still measured, as long as the agent lives.
func (r *run) measureMode(ctx context.Context, s stage, m mode) (err error) {
	p := &subject{run: r, stage: s, mode: m}
	if p.agent, err = startAgent(ctx, r, m); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.agent.remove(ctx)) }()
	if err := p.started(ctx); err != nil {
		r.options.Log.Error("not measured", "size", s.size.String(), "mode", m.name, "error", err)
		return err
	}
	var failed []error
	for _, part := range parts() {
		if part.measure == nil || !s.has(part.name) || m.proxy != nil && part.fairwayOnly {
			continue
		}
		began := time.Now()
		if err := p.measurePart(ctx, part); err != nil {
			r.options.Log.Error("not measured", "size", s.size.String(), "mode", m.name, "part", part.name, "error", err)
			failed = append(failed, fmt.Errorf("%s: %w", part.name, err))
		}
		r.options.Log.Debug("part", "name", part.name, "mode", m.name, "took", time.Since(began).Round(time.Millisecond))
		if err := p.agent.alive(); err != nil {
			return errors.Join(append(failed, fmt.Errorf("%s: %w", part.name, err))...)
		}
	}
	return errors.Join(failed...)
}

// measurePart measures one part.
func (p *subject) measurePart(ctx context.Context, part part) error {
	if !part.onlyIfNamed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, partTimeout, fmt.Errorf("not done after %s", partTimeout))
		defer cancel()
	}
	err := part.measure(ctx, p)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// subject is one mode's agent under measurement.
type subject struct {
	*run
	stage stage
	mode  mode
	agent *agentProcess
}

func (p *subject) record(row, format string, args ...any) {
	p.results.add(row, p.stage.size, p.mode.name, fmt.Sprintf(format, args...))
	p.options.Log.Info("result", "row", row, "size", p.stage.size.String(), "mode", p.mode.name, "result", fmt.Sprintf(format, args...))
}
