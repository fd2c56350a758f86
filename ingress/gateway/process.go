package gateway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/ingress/handover"
	"github.com/fairway-net/fairway/internal/tuning"
)

const (
	// socketPrefix is before the address of a Gateway's listener that is handed over.
	socketPrefix = "socket "
	// metricsName is that of the listener of health and metrics, with its address.
	metricsName = "metrics "
	// defaultDrain is how long connections have at the end if nothing else is said.
	defaultDrain = 10 * time.Second
	// newsLimit is how long somebody may not know yet that another process has taken over:
	// systemd, which is asked to stop both.
	newsLimit = 2 * time.Second
	// successorLimit bounds how long a successor that is on its way is waited for.
	successorLimit = time.Minute
)

// process is what takes another one's place, and is replaced.
type process struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	// unserved is what could not be opened.
	unserved *unserved
	lease    *lease                                     // nil if another process has it
	sockets  func() map[netip.AddrPort]*net.TCPListener // that a successor needs
	claim    *handover.Claim                            // on the process before, until this one serves
	bounded  sync.Once                                  // the garbage
	offer    atomic.Pointer[handover.Offer]             // to the process after; nil without Config.Handover
	next     *os.Process                                // that this one has started to take its place
	// leaveNext has the end of the context be no end of the next process any more; nil
	// until that has taken over.
	leaveNext func() bool
	toldNext  bool // to end, before it had taken over
}

func newProcess(config Config) *process {
	config.Namespace = cmp.Or(config.Namespace, metav1.NamespaceSystem)
	p := &process{config: config, log: config.Logger, unserved: newUnserved(), metrics: newMetrics(), sockets: func() map[netip.AddrPort]*net.TCPListener { return nil }}
	p.metrics.unserved, p.metrics.exemplars = p.unserved, config.Exemplars
	if p.log == nil {
		p.log = slog.Default()
	}
	return p
}

// leaseBy is the Lease of the node; nil for one Gateway's process.
func (p *process) leaseBy(core kubernetes.Interface) *lease {
	if p.config.member != nil {
		return nil
	}
	return &lease{core: core, namespace: p.config.Namespace, node: p.config.Node, kind: p.kind(), log: p.log, unserved: p.unserved.text, changed: p.unserved.changed}
}

// announce tells the process that runs on this node already, if any, that this one
// takes its place. Otherwise health and metrics are served at once.
func (p *process) announce(ctx context.Context) error {
	if p.config.Handover != "" {
		claim, err := handover.Connect(ctx, p.config.Handover)
		if err != nil && ctx.Err() == nil {
			p.log.Error("listeners could not be taken over; ports in use stay in use", "error", err)
		}
		p.claim = claim
	}
	if p.claim != nil {
		p.log.Info("taking over from the running process")
		return nil
	}
	return p.metrics.serve(p.config.Listen, nil, p.hasSuccessor, p.log)
}

// forget returns memory of the start, if that is asked for.
func (p *process) forget() {
	if !p.config.Lean {
		return
	}
	p.bounded.Do(func() { tuning.BoundIdleGarbage(garbageRoom, busyRoom) })
	if err := tuning.ForgetStart(); err != nil {
		p.log.Warn("memory used by the start was not released", "error", err)
	}
}

// take gets the listeners of the process before: those of Gateways, and the one of
// health and metrics.
func (p *process) take() (sockets map[netip.AddrPort]*net.TCPListener, health *net.TCPListener) {
	listeners, err := p.claim.Take()
	if err != nil {
		p.log.Warn("the previous process ended without handing over", "error", err)
	}
	sockets, health = map[netip.AddrPort]*net.TCPListener{}, listeners[metricsName+p.config.Listen]
	for name, l := range listeners {
		bind, isSocket := strings.CutPrefix(name, socketPrefix)
		if address, err := netip.ParseAddrPort(bind); isSocket && err == nil {
			sockets[address] = l
		} else if l != health {
			_ = l.Close() // another address is asked for now
		}
	}
	return sockets, health
}

// notify tells systemd, if it has started this, that this process serves and is
// the one to watch (sd_notify(3)).
func (p *process) notify() {
	if p.config.member != nil {
		return
	}
	if _, err := daemon.SdNotify(false, fmt.Sprintf("MAINPID=%d\n%s", os.Getpid(), daemon.SdNotifyReady)); err != nil {
		p.log.Warn("systemd could not be told of the new process", "error", err)
	}
}

func (p *process) makeOffer(inherited *net.UnixListener) {
	if p.config.Handover == "" {
		return
	}
	offer, err := handover.Listen(p.config.Handover, inherited, p.listeners, p.log)
	if err != nil {
		p.log.Error("another process can't take over from this one", "error", err)
		return
	}
	p.offer.Store(offer)
}

// listeners are those that a successor needs, by name.
func (p *process) listeners() map[string]*net.TCPListener {
	out := map[string]*net.TCPListener{}
	for bind, l := range p.sockets() {
		out[socketPrefix+bind.String()] = l
	}
	if l, isTCP := p.metrics.listener.(*net.TCPListener); isTCP {
		out[metricsName+p.config.Listen] = l
	}
	return out
}

func (p *process) hasSuccessor() bool {
	offer := p.offer.Load()
	return offer != nil && offer.Left() != nil
}

// taken is closed once another process serves; nil if none can.
func (p *process) taken() <-chan struct{} {
	if offer := p.offer.Load(); offer != nil {
		return offer.Taken()
	}
	return nil
}

// wait returns once the process is told to end, or another one has taken over,
// which it reports. A successor that is on its way is waited for.
func (p *process) wait(ctx context.Context) (succeeded bool) {
	for {
		select {
		case <-p.taken():
			told := context.AfterFunc(ctx, p.endNext)
			time.AfterFunc(newsLimit, func() { told() })
			p.leaveNext = told
			return true
		case <-p.config.Upgrade:
			p.upgrade()
			continue
		case <-ctx.Done():
		}
		break
	}
	p.endNext()
	p.toldNext = p.next != nil
	offer := p.offer.Load()
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
