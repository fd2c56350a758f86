package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/fairway-net/fairway/ingress/handover"
)

const (
	// socketPrefix is before the address of a Gateway's listener that is handed over.
	socketPrefix = "socket "
	// metricsName is that of the listener of health and metrics, with its address.
	metricsName = "metrics "
	// defaultDrain is how long connections have at the end if nothing else is said.
	defaultDrain = 10 * time.Second
	// successorLimit bounds how long a successor that is on its way is waited for.
	successorLimit = time.Minute
)

// announce tells the process that runs on this node already, if any, that this one
// takes its place. Otherwise health and metrics are served at once.
func (g *gateway) announce(ctx context.Context) error {
	if g.config.Handover != "" {
		claim, err := handover.Connect(ctx, g.config.Handover)
		if err != nil && ctx.Err() == nil {
			g.log.Error("listeners could not be taken over; ports in use stay in use", "err", err)
		}
		g.claim = claim
	}
	if g.claim != nil {
		g.log.Info("taking over from the running process")
		return nil
	}
	return g.metrics.serve(g.config.Listen, nil, g.hasSuccessor, g.log)
}

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
	listeners, err := g.claim.Take()
	if err != nil {
		g.log.Warn("the previous process ended without handing over", "err", err)
	}
	sockets := map[netip.AddrPort]*net.TCPListener{}
	health := listeners[metricsName+g.config.Listen]
	for name, l := range listeners {
		bind, isSocket := strings.CutPrefix(name, socketPrefix)
		if address, err := netip.ParseAddrPort(bind); isSocket && err == nil {
			sockets[address] = l
		} else if l != health {
			_ = l.Close() // another address is asked for now
		}
	}
	g.engine.Inherit(sockets)
	again = g.sync(ctx, true)
	if err := g.metrics.serve(g.config.Listen, health, g.hasSuccessor, g.log); err != nil {
		return again, err
	}
	g.makeOffer(g.claim.Own)
	if err := g.claim.Serving(); err != nil {
		g.log.Warn("the previous process has already ended", "err", err)
	}
	g.notify()
	g.log.Info("took over", "listeners", len(listeners))
	return again, nil
}

// notify tells systemd, if it has started this, that this process serves and is
// the one to watch (sd_notify(3)).
func (g *gateway) notify() {
	if _, err := daemon.SdNotify(false, fmt.Sprintf("MAINPID=%d\n%s", os.Getpid(), daemon.SdNotifyReady)); err != nil {
		g.log.Warn("systemd not told", "err", err)
	}
}

func (g *gateway) makeOffer(inherited *net.UnixListener) {
	if g.config.Handover == "" {
		return
	}
	offer, err := handover.Listen(g.config.Handover, inherited, g.listeners, g.log)
	if err != nil {
		g.log.Error("another process can't take over from this one", "err", err)
		return
	}
	g.offer.Store(offer)
}

// listeners are those that a successor needs, by name.
func (g *gateway) listeners() map[string]*net.TCPListener {
	out := map[string]*net.TCPListener{}
	for bind, l := range g.engine.Listeners() {
		out[socketPrefix+bind.String()] = l
	}
	if l := g.metrics.listener; l != nil {
		out[metricsName+g.config.Listen] = l
	}
	return out
}

func (g *gateway) hasSuccessor() bool {
	offer := g.offer.Load()
	return offer != nil && offer.Left() != nil
}

// taken is closed once another process serves; nil if none can.
func (g *gateway) taken() <-chan struct{} {
	if offer := g.offer.Load(); offer != nil {
		return offer.Taken()
	}
	return nil
}

// serve waits for the end or for a successor, and lets connections end.
func (g *gateway) serve(ctx context.Context) {
	leasing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var lease sync.WaitGroup
	lease.Go(func() { g.lease(leasing) })
	succeeded := g.wait(ctx)
	stop()
	lease.Wait()
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

// wait returns once the process is told to end, or another one has taken over,
// which it reports. A successor that is on its way is waited for.
func (g *gateway) wait(ctx context.Context) (succeeded bool) {
	for {
		select {
		case <-g.taken():
			return true
		case <-g.config.Upgrade:
			g.upgrade()
			continue
		case <-ctx.Done():
		}
		break
	}
	offer := g.offer.Load()
	if offer == nil {
		return false
	}
	defer offer.Close()
	if left := offer.Left(); left != nil {
		select {
		case <-left:
		case <-time.After(successorLimit):
		}
	}
	select {
	case <-offer.Taken():
		return true
	default:
		return false
	}
}

// leave has load balancers know that this node has no engine any more, and takes
// what comes until they do.
func (g *gateway) leave() {
	g.metrics.ready.Store(false)
	g.release()
	if g.config.Delay <= 0 {
		return
	}
	g.log.Info("ending; accepting new connections a little longer", "for", g.config.Delay)
	time.Sleep(g.config.Delay) // a second signal ends the process
}
