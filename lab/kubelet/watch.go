package kubelet

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// watch is what goes on beside a container from one start to the next: its
// postStart hook, and its probes.
type watch struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// begin begins to watch a container that has been started, or started again.
func (c *container) begin(ctx context.Context) {
	c.stopProbing()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel, done: make(chan struct{})}
	c.watch = w
	c.started, c.ready = !c.isWaitedFor(), c.spec.ReadinessProbe == nil
	go func() {
		defer close(w.done)
		for c.attend(ctx) && ctx.Err() == nil {
		}
	}()
}

// isWaitedFor says whether something stands between the process and its start.
func (c *container) isWaitedFor() bool {
	return c.spec.StartupProbe != nil || c.spec.Lifecycle != nil && c.spec.Lifecycle.PostStart != nil
}

// stopProbing ends the watch, if there is one.
func (c *container) stopProbing() {
	c.mu.Lock()
	w := c.watch
	c.mu.Unlock()
	if w != nil {
		w.cancel()
		<-w.done
	}
}

// attend watches the container until ctx ends or it has to be started again; true
// if that has happened and it has to be watched from the beginning.
func (c *container) attend(ctx context.Context) bool {
	if l := c.spec.Lifecycle; l != nil && l.PostStart != nil {
		if err := c.hook(ctx, l.PostStart); err != nil {
			c.warn("FailedPostStartHook", "PostStartHook failed: %v", err)
			return ctx.Err() == nil && c.restartAfter(ctx, nil, "FailedPostStartHook")
		}
	}
	if p := c.spec.StartupProbe; p != nil && !c.probe(ctx, p, "Startup", func(bool) bool { return false }) {
		return ctx.Err() == nil && c.restartAfter(ctx, p, "failed startup probe")
	}
	c.setState(true, c.spec.ReadinessProbe == nil)
	var readiness sync.WaitGroup
	defer readiness.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p := c.spec.ReadinessProbe; p != nil {
		readiness.Go(func() {
			c.probe(ctx, p, "Readiness", func(passed bool) bool { c.setState(true, passed); return true })
		})
	}
	if p := c.spec.LivenessProbe; p != nil && !c.probe(ctx, p, "Liveness", func(passed bool) bool { return passed }) {
		return ctx.Err() == nil && c.restartAfter(ctx, p, "failed liveness probe")
	}
	readiness.Wait()
	return false
}

// restartAfter has the container started again; true if that has happened already.
func (c *container) restartAfter(ctx context.Context, p *corev1.Probe, why string) bool {
	c.setState(false, false)
	c.worker.kubelet.events.Eventf(c.worker.first, corev1.EventTypeNormal, "Killing", "Container %s %s, will be restarted", c.spec.Name, why)
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := c.worker.first.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	if p != nil && p.TerminationGracePeriodSeconds != nil {
		seconds = *p.TerminationGracePeriodSeconds
	}
	again, err := c.process.restart(time.Duration(seconds) * time.Second)
	if err != nil {
		c.warn("Failed", "Error restarting container: %v", err)
	}
	c.worker.notify()
	return again || err != nil && sleep(ctx, retryAfter)
}

func (c *container) warn(reason, format string, err error) {
	if !errors.Is(err, context.Canceled) {
		c.worker.kubelet.events.Eventf(c.worker.first, corev1.EventTypeWarning, reason, "container "+c.spec.Name+": "+format, err)
	}
}

// probe probes until the context ends, and tells when the probe has passed or
// failed as often as it takes. It ends when it is told that this was enough: true
// if the probe had passed. Zero fields of the probe have the API's defaults.
func (c *container) probe(ctx context.Context, p *corev1.Probe, kind string, goOn func(passed bool) bool) bool {
	seconds := func(n, fallback int32) time.Duration { return time.Duration(cmp.Or(n, fallback)) * time.Second }
	if !sleep(ctx, seconds(p.InitialDelaySeconds, 0)) {
		return false
	}
	passed, failed := int32(0), int32(0)
	for {
		within, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1))
		err := c.handle(within, p.ProbeHandler)
		cancel()
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			passed, failed = passed+1, 0
		default:
			passed, failed = 0, failed+1
			c.worker.kubelet.events.Eventf(c.worker.first, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %v", kind, err)
		}
		if passed >= cmp.Or(p.SuccessThreshold, 1) && !goOn(true) {
			return true
		}
		if failed >= cmp.Or(p.FailureThreshold, 3) && !goOn(false) {
			return false
		}
		if !sleep(ctx, seconds(p.PeriodSeconds, 10)) {
			return false
		}
	}
}

// setState notes what the probes say.
func (c *container) setState(started, ready bool) {
	c.mu.Lock()
	changed := c.ready != ready || c.started != started
	c.started, c.ready = started, ready
	c.mu.Unlock()
	if changed {
		c.worker.notify()
	}
}
