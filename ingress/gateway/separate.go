package gateway

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/fairway-net/fairway/ingress/handover"
	"github.com/fairway-net/fairway/ingress/watch"
)

// separate supervises a process for each Gateway. It serves nothing but health and
// metrics, and knows of the API only which Gateways there are.
type separate struct {
	*process
	core     kubernetes.Interface
	restarts *prometheus.CounterVec
	known    chan struct{} // closed with the first complete list of Gateways

	mu       sync.Mutex
	wanted   map[types.NamespacedName]bool
	started  bool // processes may be started
	children map[types.NamespacedName]*child
	running  sync.WaitGroup
}

// settleLimit bounds how long a supervisor that takes over waits for its members: the
// one before waits for its word as long as [handover.Claim.Take] says.
const settleLimit = 20 * time.Second

// runSeparate serves until ctx is done or another process has taken over.
func runSeparate(ctx context.Context, p *process) error {
	api := rest.CopyConfig(p.config.API)
	api.QPS = -1
	core, err := kubernetes.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("make API client: %w", err)
	}
	custom := rest.CopyConfig(api)
	custom.ContentType, custom.AcceptContentTypes = "application/json", "application/json"
	gateways, err := versioned.NewForConfig(custom)
	if err != nil {
		return fmt.Errorf("make client for Gateway API: %w", err)
	}
	s := &separate{process: p, core: core, known: make(chan struct{}), children: map[types.NamespacedName]*child{}}
	if s.lease = p.leaseBy(core); s.lease != nil {
		s.lease.unserved = s.unservedText
	}
	s.gather()
	defer s.metrics.close()
	if err := s.announce(ctx); err != nil {
		return err
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var threads sync.WaitGroup
	threads.Go(func() { watch.FollowGateways(following, core, gateways, s.want) })
	defer func() { stop(); threads.Wait() }()
	select {
	case <-ctx.Done():
		return nil
	case <-s.known:
	}
	switch serves, err := s.begin(ctx); {
	case err != nil:
		return err
	case !serves:
		stop()
		threads.Wait()
		s.endAll()
		return nil
	}
	s.forget()
	s.log.Info("a process for each Gateway serves", "gateways", len(s.all()))
	release := s.lease.begin(ctx)
	succeeded := s.wait(ctx)
	stop()
	threads.Wait() // no more processes are started
	release()
	s.end(succeeded)
	return nil
}

// begin starts the processes, and takes over from the supervisor before, if there is
// one; its members are taken over from by these. What it serves itself is theirs. One
// that is told to end meanwhile leaves the supervisor before as it is.
func (s *separate) begin(ctx context.Context) (serves bool, err error) {
	var sockets map[netip.AddrPort]*net.TCPListener
	var health *net.TCPListener
	if s.claim != nil {
		sockets, health = s.take()
	}
	offers := s.offerAll(sockets)
	s.start()
	s.settle(ctx)
	for _, o := range offers {
		o.Close()
	}
	for _, l := range sockets {
		_ = l.Close() // who needs it has it
	}
	if s.claim != nil && ctx.Err() != nil {
		s.claim.Close()
		return false, nil
	}
	s.metrics.ready.Store(true)
	if s.claim == nil {
		s.makeOffer(nil)
		s.notify()
		return true, nil
	}
	if err := s.metrics.serve(s.config.Listen, health, s.hasSuccessor, s.log); err != nil {
		return false, err
	}
	s.makeOffer(s.claim.Own)
	if err := s.claim.Serving(); err != nil {
		s.log.Warn("the previous process has already ended", "error", err)
	}
	s.notify()
	return true, nil
}

// offerAll offers each member the listeners of a process that served all Gateways.
func (s *separate) offerAll(sockets map[netip.AddrPort]*net.TCPListener) []*handover.Offer {
	if len(sockets) == 0 {
		return nil
	}
	names := map[string]*net.TCPListener{}
	for bind, l := range sockets {
		names[socketPrefix+bind.String()] = l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*handover.Offer
	for gateway := range s.wanted {
		o, err := handover.Listen(memberAddress(s.config.Handover, gateway), nil, func() map[string]*net.TCPListener { return names }, s.log)
		if err != nil {
			s.log.Error("listeners can't be passed on", "gateway", gateway, "error", err)
			continue
		}
		list = append(list, o)
	}
	return list
}

// want says for which Gateways there are to be processes.
func (s *separate) want(gateways map[types.NamespacedName]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted == nil {
		close(s.known)
	}
	s.wanted = gateways
	if s.started {
		s.change()
	}
}

// start starts the processes that are wanted by now.
func (s *separate) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	s.change()
}

// change starts and ends processes. The mutex is held.
func (s *separate) change() {
	for gateway, c := range s.children {
		if !s.wanted[gateway] {
			c.end()
			delete(s.children, gateway)
		}
	}
	for gateway := range s.wanted {
		if s.children[gateway] == nil {
			c := newChild(s, gateway)
			s.children[gateway] = c
			s.running.Go(c.run)
		}
	}
}

// all are the processes that are wanted.
func (s *separate) all() []*child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.children))
}

// settle waits until all processes serve, or have failed once: one that can't start
// doesn't hold up the others.
func (s *separate) settle(ctx context.Context) {
	limit := make(<-chan time.Time)
	if s.claim != nil {
		limit = time.After(settleLimit)
	}
	for _, c := range s.all() {
		select {
		case <-c.settled:
		case <-ctx.Done():
			return
		case <-limit:
			s.log.Warn("taking over although some Gateways aren't served yet", "gateway", c.gateway)
			return
		}
	}
}

// succeeded reports whether another supervisor has taken over. One that is on its way
// is waited for.
func (s *separate) succeeded() bool {
	offer := s.offer.Load()
	if offer == nil {
		return false
	}
	if left := offer.Left(); left != nil {
		<-left
	}
	select {
	case <-offer.Taken():
		return true
	default:
		return false
	}
}

// end waits for all processes. Those that have been taken over from end by themselves.
func (s *separate) end(succeeded bool) {
	ended := make(chan struct{})
	go func() { s.running.Wait(); close(ended) }()
	if succeeded {
		s.log.Info("another process has taken over; those of Gateways drain connections")
		s.metrics.close()
		select {
		case <-ended:
			return
		case <-time.After(s.config.Engine.Drain + successorLimit):
		}
	} else {
		s.metrics.ready.Store(false)
		s.lease.release()
	}
	s.endAll()
}

// endAll ends all processes.
func (s *separate) endAll() {
	for _, c := range s.all() {
		c.end()
	}
	s.running.Wait()
}
