package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// lane is one of several ways to connect that are compared with one another.
type lane struct {
	name    string
	from    *topology.Host
	to      func() netip.AddrPort
	workers *workers
	n       int           // connections made
	over    time.Duration // in this time
	cpu     time.Duration // of this process, so of both ends and of the way between
}

const (
	laneWorkers = 2 // who connect at once in a lane
	laneSlice   = 150 * time.Millisecond
	laneRounds  = 60 // with twelve, the same rules had 0.88 of direct and 1.02
)

// compare has lanes take turns, in short slices, so that what disturbs one
// disturbs all.
func compare(ctx context.Context, lanes []*lane) (err error) {
	for _, l := range lanes {
		if l.workers, err = newWorkers(l.from, laneWorkers); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.workers.close()) }()
	}
	for round := range laneRounds {
		for _, l := range lanes {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := l.turn(round > 0); err != nil { // the first warms up
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return nil
}

// turn connects for one slice of time with all workers.
func (l *lane) turn(counts bool) error {
	type result struct {
		n   int
		err error
	}
	results := make(chan result, laneWorkers)
	began, usedBefore := time.Now(), processorTime()
	for range laneWorkers {
		l.workers.jobs <- func() {
			var r result
			for time.Since(began) < laneSlice && r.err == nil {
				_, r.err = connect(l.to())
				r.n++
			}
			results <- r
		}
	}
	n := 0
	var errs []error
	for range laneWorkers {
		r := <-results
		n += r.n
		errs = append(errs, r.err)
	}
	if counts {
		l.n += n
		l.over += time.Since(began)
		l.cpu += processorTime() - usedBefore
	}
	return errors.Join(errs...)
}

func (l *lane) rate() float64 { return float64(l.n) / l.over.Seconds() }

// cost is the processor time of a connection: beside others' work it says more
// than the rate does.
func (l *lane) cost() time.Duration { return l.cpu / time.Duration(max(l.n, 1)) }

// processorTime is what this process has used.
func processorTime() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil { // can't fail for the caller itself
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// measureConnections connects to all Services in no order, to their endpoints
// directly, and directly past a node without any agent.
func measureConnections(ctx context.Context, p *subject) error {
	list := p.api.world.services[:p.stage.size.services]
	any := func() *service { return list[rand.IntN(len(list))] }
	direct := func() netip.AddrPort {
		s := any()
		return netip.AddrPortFrom(s.addrs[rand.IntN(len(s.addrs))], helloPort)
	}
	vip := &lane{name: "VIP", from: p.site.client.Host, to: func() netip.AddrPort { return any().vip }}
	plain := &lane{name: "direct", from: p.site.client.Host, to: direct}
	bare := &lane{name: "direct without an agent", from: p.site.bare.Host, to: direct}
	if err := compare(ctx, []*lane{vip, plain, bare}); err != nil {
		return err
	}
	us := func(l *lane) float64 { return l.cost().Seconds() * 1e6 }
	p.record("connections", "%.2f of direct (%.0f/s of %.0f/s); direct itself %.2f of a node without an agent; processor time of a connection %.1f, %.1f, %.1f µs",
		vip.rate()/plain.rate(), vip.rate(), plain.rate(), plain.rate()/bare.rate(), us(vip), us(plain), us(bare))
	return nil
}
