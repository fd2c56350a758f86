package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// budget is how long one measure repeats; a slow mode gets fewer repetitions,
// but some.
const (
	budget    = 4 * time.Second
	fewest    = 8
	mostTimes = 400
)

// enough reports whether to stop after n repetitions.
func enough(began time.Time, n int) bool {
	return n >= mostTimes || n >= fewest && time.Since(began) > budget
}

// latency is what one change took: from when it was sent and from when the API
// had written it.
type latency struct{ sent, written time.Duration }

// move gives a probe a new endpoint and waits for the first connection to it.
func (p *subject) move(ctx context.Context, probe *service) (l latency, err error) {
	to := p.api.world.address()
	reached := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go p.site.workers.do(func() {
		at, err := reach(ctx, probe.vip, func(a netip.Addr) bool { return a == to })
		failed <- err
		reached <- at
	})
	sent := time.Now()
	err = p.api.setEndpoints(ctx, probe, []netip.Addr{to})
	written := time.Now()
	if reachErr := <-failed; err == nil {
		err = reachErr
	}
	at := <-reached
	return latency{at.Sub(sent), max(0, at.Sub(written))}, err
}

// measureLatency moves one endpoint at a time.
func measureLatency(ctx context.Context, p *subject) error {
	var all []latency
	for began := time.Now(); !enough(began, len(all)); {
		l, err := p.move(ctx, p.api.world.probes[len(all)%numProbes])
		if err != nil {
			return err
		}
		all = append(all, l)
		pause(ctx, 2*time.Millisecond+rand.N(8*time.Millisecond)) // not in step with anything
	}
	p.record("latency", "%s (from sending the write: %s; %d changes)",
		percentiles(all, func(l latency) time.Duration { return l.written }),
		percentiles(all, func(l latency) time.Duration { return l.sent }), len(all))
	return nil
}

// measureService makes Services: two writes, then the first connection.
func measureService(ctx context.Context, p *subject) error {
	var all []latency
	var made []*service
	for began := time.Now(); !enough(began, len(all)) && len(all) < mostTimes/2; {
		sent := time.Now()
		svc, err := p.api.createService(ctx, fmt.Sprintf("new%d", len(made)), corev1.ProtocolTCP, helloPort)
		if err != nil {
			return err
		}
		to := p.api.world.address()
		reached, failed := make(chan time.Time, 1), make(chan error, 1)
		go p.site.workers.do(func() {
			at, err := reach(ctx, svc.vip, func(a netip.Addr) bool { return a == to })
			failed <- err
			reached <- at
		})
		err = p.api.createSlice(ctx, svc, corev1.ProtocolTCP, helloPort, []netip.Addr{to})
		written := time.Now()
		if reachErr := <-failed; err == nil {
			err = reachErr
		}
		if err != nil {
			return err
		}
		at := <-reached
		all = append(all, latency{at.Sub(sent), max(0, at.Sub(written))})
		made = append(made, svc)
		pause(ctx, 5*time.Millisecond)
	}
	p.record("service", "%s (from the second write's end: %s; %d Services)",
		percentiles(all, func(l latency) time.Duration { return l.sent }),
		percentiles(all, func(l latency) time.Duration { return l.written }), len(all))
	return each(len(made), writers, func(i int) error { return p.api.deleteService(ctx, made[i]) })
}

// measureCPU replaces one endpoint of a Service at a time, far enough apart
// that no two are merged.
func measureCPU(ctx context.Context, p *subject) error {
	var tries []latency
	for i := range 5 { // the first may find the agent busy with what its start has left
		l, err := p.move(ctx, p.api.world.probes[i])
		if err != nil {
			return err
		}
		tries = append(tries, l)
	}
	slices.SortFunc(tries, func(a, b latency) int { return cmp.Compare(a.sent, b.sent) })
	apart := max(15*time.Millisecond, tries[len(tries)/2].sent*3/2)
	if err := p.quiet(ctx); err != nil {
		return err
	}
	before, err := p.agent.usage.cpu()
	if err != nil {
		return err
	}
	n := 0
	for began := time.Now(); !enough(began, n); n++ {
		next := time.Now().Add(apart)
		if err := p.replaceOne(ctx, rand.IntN(p.stage.size.services)); err != nil {
			return err
		}
		pause(ctx, time.Until(next))
	}
	if err := p.quiet(ctx); err != nil {
		return err
	}
	after, err := p.agent.usage.cpu()
	if err != nil {
		return err
	}
	p.record("cpu", "%s (%d changes)", milliseconds((after-before)/time.Duration(n)), n)
	return nil
}

// replaceOne replaces one endpoint of the Service with a number.
func (p *subject) replaceOne(ctx context.Context, i int) error {
	svc := p.api.world.services[i]
	addrs := slices.Clone(svc.addrs)
	addrs[rand.IntN(len(addrs))] = p.api.world.address()
	return p.api.setEndpoints(ctx, svc, addrs)
}

// quiet waits until the agent uses next to no processor time.
func (p *subject) quiet(ctx context.Context) error {
	const look, little = 100 * time.Millisecond, 3 * time.Millisecond
	last, err := p.agent.usage.cpu()
	for deadline := time.Now().Add(reachTimeout); err == nil && time.Now().Before(deadline); {
		pause(ctx, look)
		var now time.Duration
		now, err = p.agent.usage.cpu()
		if now-last < little {
			return err
		}
		last = now
	}
	return err
}

const (
	rateEvery = 10 * time.Millisecond
	rateLasts = 40 * time.Second // the agent compares with the kernel once, at least
)

// measureRate makes 100 changes per second, each of another Service.
func measureRate(ctx context.Context, p *subject) error {
	if err := p.quiet(ctx); err != nil {
		return err
	}
	before, err := p.agent.usage.cpu()
	if err != nil {
		return err
	}
	n := int(rateLasts / rateEvery)
	all, errs := make([]latency, n), make([]error, n)
	var moves sync.WaitGroup
	busy := make([]sync.Mutex, numProbes) // one change of a probe at a time
	began := time.Now()
	for i := range n {
		pause(ctx, time.Until(began.Add(time.Duration(i)*rateEvery)))
		moves.Go(func() {
			probe := i % numProbes
			busy[probe].Lock()
			defer busy[probe].Unlock()
			all[i], errs[i] = p.move(ctx, p.api.world.probes[probe])
		})
	}
	moves.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := p.agent.usage.cpu()
	if err != nil {
		return err
	}
	p.record("rate", "lag %s; %.0f %% of a core (%.0f changes/s)", percentiles(all, func(l latency) time.Duration { return l.written }),
		100*(after-before).Seconds()/took.Seconds(), float64(n)/took.Seconds())
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// percentiles gives the median and the 99th percentile.
func percentiles(all []latency, of func(latency) time.Duration) string {
	list := make([]time.Duration, len(all))
	for i, l := range all {
		list[i] = of(l)
	}
	slices.Sort(list)
	at := func(share float64) time.Duration { return list[min(len(list)-1, int(share*float64(len(list))))] }
	return fmt.Sprintf("%s / %s", milliseconds(at(0.5)), milliseconds(at(0.99)))
}

func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}
