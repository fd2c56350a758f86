package gateway

import (
	"context"
	"time"
)

// begin serves the first table, with the listeners of the process before if there
// is one. It reports whether some sockets have to be tried again.
func (g *gateway) begin(ctx context.Context) (again bool, err error) {
	g.watch.SetNode(g.config.Node, g.zone(ctx))
	if g.claim == nil {
		again = g.sync(ctx, true)
		g.makeOffer(nil)
		g.notify()
		return again, nil
	}
	sockets, health := g.take()
	inherited := len(sockets)
	g.engine.Inherit(sockets)
	again = g.sync(ctx, true)
	if err := g.metrics.serve(g.config.Listen, health, g.hasSuccessor, g.log); err != nil {
		return again, err
	}
	g.makeOffer(g.claim.Own)
	if err := g.claim.Serving(); err != nil {
		g.log.Warn("the previous process has already ended", "error", err)
	}
	g.notify()
	g.log.Info("the listeners of the previous process were taken over", "listeners", inherited)
	return again, nil
}

// serve waits for the end or for a successor, and lets connections end.
func (g *gateway) serve(ctx context.Context) {
	release := g.lease.begin(ctx)
	succeeded := g.wait(ctx)
	release()
	if !succeeded {
		g.leave()
	} else {
		g.log.Info("another process has taken over; draining connections")
		g.metrics.close()
	}
	drain := g.config.Engine.Drain
	if drain == 0 {
		drain = defaultDrain
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	g.engine.Close(closing)
}

// leave has load balancers know that this node has no engine any more, and takes
// what comes until they do.
func (g *gateway) leave() {
	g.metrics.ready.Store(false)
	g.lease.release()
	if g.config.Delay <= 0 {
		return
	}
	g.log.Info("ending; accepting new connections a little longer", "duration", g.config.Delay)
	time.Sleep(g.config.Delay) // a second signal ends the process
}
