// Package gateway is the process `fairway gateway`: it follows the API, compiles
// what is there and has an engine serve it, and says by a Lease that this node
// has an engine. What is written to Gateways and routes is the controller's.
//
//	gateway.go  API objects in, tables out
//	process.go  what a gateway and a supervisor of gateways have in common: from one
//	            process to the next, and the end
//	succeed.go  how a gateway takes over and ends
//	separate.go a process for each Gateway
//	child.go    such a process, for its supervisor
//	member.go   such a process, for itself
//	gather.go   the metrics of all of them
//	upgrade.go  starting this program anew, as its own successor
//	engine.go   which engine it is
//	lease.go    that this node has an engine
//	unserved.go which ports could not be opened
//	metrics.go  health and metrics
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/ingress/certs"
	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/tracing"
	"github.com/fairway-net/fairway/ingress/watch"
	"github.com/fairway-net/fairway/internal/latest"
)

// Config says how a gateway runs.
type Config struct {
	API  *rest.Config
	Node string // that this runs on
	// Namespace is where a Lease says that the node has an engine; kube-system if
	// "". The controller has to look there.
	Namespace string
	Engine    native.Options
	// Kind is which engine serves, one of engines.Names; native if "". The others take
	// from Engine what they have.
	Kind string
	// Listen is where health and metrics are served; "" serves none.
	Listen string
	// Handover is the Unix socket where a process that is to take this one's place
	// gets the listeners, and where this one looks for its predecessor; "" is none.
	Handover string
	// Delay is how long new connections are still taken once the process is told to
	// end, so that load balancers can learn of it.
	Delay time.Duration
	// Upgrade, if not nil, starts this program anew to take the place of the
	// process, whenever something comes.
	Upgrade <-chan os.Signal
	// Command, if not nil, makes the command that runs a process of its own for a
	// Gateway's ports, which is this program with [Config.Member]. No Gateway shares
	// another one's fate then.
	Command func(gateway types.NamespacedName) *exec.Cmd
	// Certificates are in files: what --certificate says, each as [certs.New] has it.
	Certificates []string
	// Traces are told to a collector by the native engine.
	Traces tracing.Options
	// Exemplars has the histogram of requests name traces.
	Exemplars bool
	// Lean has the memory that only the start needed go back to the system, and
	// little garbage gather: for a process of its own.
	Lean   bool
	Logger *slog.Logger
	// Gone, if not nil, says which machines are gone, as their peers agree. A process that serves
	// one Gateway is told by its supervisor.
	Gone *latest.Value[[]compile.Machine]

	member *member // nil unless this serves one Gateway for another process
}

// merge is how long changes that come together are waited for.
const merge = 2 * time.Millisecond

// retry is when sockets that could not be opened are tried again.
const retry = time.Second

// gateway is one at work.
type gateway struct {
	*process
	watch        *watch.Watch
	engine       engine
	certificates *ingress.Certificates
	files        *certs.Files
	out          *ingress.Output
	objects      *ingress.Objects
	holders      map[uint16]string // of the engine's ports, by the name of the socket
	failed       bool              // some socket could not be opened, and is tried again
}

// traces has the engine tell a collector of requests. What is returned tells the rest.
func (g *gateway) traces(ctx context.Context) (end func(), err error) {
	if g.config.Traces.Endpoint == "" {
		return func() {}, nil
	}
	tracer, err := tracing.New(context.WithoutCancel(ctx), g.config.Traces)
	if err != nil {
		return nil, err
	}
	g.config.Engine.Trace = tracer.Begin
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesEnd)
		defer cancel()
		if err := tracer.Close(ctx); err != nil {
			g.log.Warn("traces of the last requests are lost", "error", err)
		}
	}, nil
}

// tracesEnd is how long a collector may take for the last traces.
const tracesEnd = 2 * time.Second

// Run serves until ctx is done or another process has taken over, and then lets
// connections end.
func Run(ctx context.Context, config Config) error {
	p := newProcess(config)
	defer func() {
		if p.leaveNext != nil {
			p.leaveNext() // the context may end with this call
		}
		p.awaitNext()
	}()
	if config.Command != nil {
		return runSeparate(ctx, p)
	}
	g := &gateway{process: p, certificates: ingress.NewCertificates()}
	end, err := g.traces(ctx)
	if err != nil {
		return err
	}
	defer end()
	if g.files, err = certs.New(config.Certificates, g.log); err != nil {
		return err
	}
	if err = g.makeEngine(); err != nil {
		return err
	}
	g.sockets = g.engine.Listeners
	if g.watch, err = watch.New(config.API, g.log); err != nil {
		return err
	}
	g.watch.LeaveStatuses()
	if config.member != nil {
		g.watch.Only(config.member.gateway)
	}
	g.lease = g.leaseBy(g.watch.Core)
	defer g.metrics.close()
	if config.member != nil {
		g.metrics.serveAt(config.member.report, g.hasSuccessor, g.log)
	}
	if err = g.announce(ctx); err != nil {
		return err
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx)) // endpoints change while connections end, too
	var threads sync.WaitGroup
	defer threads.Wait()
	defer stop()
	synced := make(chan struct{})
	threads.Go(func() { g.watch.Run(following, func() { close(synced) }) })
	threads.Go(func() { config.followGone(following.Done(), g.watch.SetGone) })
	select {
	case <-ctx.Done():
		return nil
	case <-synced:
	}
	g.forget()
	again, err := g.begin(ctx)
	if err != nil {
		return err
	}
	g.forget()
	threads.Go(func() { g.follow(following, again) })
	if len(config.Certificates) > 0 {
		threads.Go(func() { g.files.Watch(following, g.watch.Wake) })
	}
	g.serve(ctx)
	return nil
}

// followGone hands on which machines are gone, now and when that changes.
func (c *Config) followGone(done <-chan struct{}, to func([]compile.Machine)) {
	if c.Gone == nil {
		return
	}
	for {
		machines, next := c.Gone.Get()
		to(machines)
		select {
		case <-done:
			return
		case <-next:
		}
	}
}

// garbageRoom is how much of it may gather. Each request leaves some, so under load
// it may be busyRoom: with less, a sixth of the time goes into collecting it.
const (
	garbageRoom = 8 << 20
	busyRoom    = 128 << 20
)

// follow applies what there is, whenever it has changed.
func (g *gateway) follow(ctx context.Context, again bool) {
	timer := time.NewTimer(retry)
	defer timer.Stop()
	waits := true // for the timer, which changes in between don't put off
	for {
		if again && !waits {
			timer.Reset(retry)
			waits = true
		}
		select {
		case <-ctx.Done():
			return
		case <-g.watch.Changed():
			time.Sleep(merge)
			again = g.sync(ctx, false)
		case <-timer.C:
			waits = false
			if again {
				again = g.sync(ctx, true)
			}
		}
	}
}

// sync brings the engine up to date, and reports whether it has to be tried again.
func (g *gateway) sync(ctx context.Context, all bool) (again bool) {
	began := time.Now()
	changes := g.watch.Take()
	options := ingress.Options{Bind: g.bind, Endpoints: g.endpoints, Certificates: g.certificates, Files: g.files.Of, TableOnly: true, Challenges: types.NamespacedName{Namespace: g.config.Namespace, Name: ingress.ChallengesName}}
	if m := g.config.member; m != nil {
		options.Only = func(name types.NamespacedName) bool { return name == m.gateway }
	}
	switch {
	case all || g.out == nil || g.needsAll(&changes):
		g.compile(ctx, options)
	case changes.None() || g.isUnrelated(&changes):
		return g.failed // what could not be opened is still tried again
	default:
		part := ingress.Changes{HTTPRoutes: changes.HTTPRoutes, GRPCRoutes: changes.GRPCRoutes, Ingresses: changes.Ingresses, Services: changes.Services, Moved: changes.Moved}
		if !g.out.Update(part, options) || g.refersToMore(ctx) {
			g.compile(ctx, options)
		}
	}
	err := g.engine.Apply(g.out.Table)
	if unserved := unservedOf(g.out.Table, err); g.unserved.set(unserved) && err != nil {
		g.log.Error("table applied in part; the rest is tried again until it can be", "error", err)
	}
	g.metrics.applied(g.out.Table, time.Since(began))
	g.failed = err != nil
	return g.failed
}

// referTimeout is how long an API that doesn't answer holds up changes that need
// Secrets which are not known yet.
const referTimeout = 3 * time.Second

// compile compiles everything. What it refers to is read first; the first table
// waits for all of it.
func (g *gateway) compile(ctx context.Context, options ingress.Options) {
	bounded := func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, referTimeout) }
	if g.out == nil {
		bounded = func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
	}
	ctx, cancel := bounded()
	defer cancel()
	for {
		g.objects = g.watch.Objects()
		g.out = ingress.Compile(g.objects, options)
		if !g.watch.Refer(ctx, g.out.Secrets, g.out.ConfigMaps) {
			return
		}
	}
}

// refersToMore reports whether something refers to Secrets or ConfigMaps that were
// not known; they are now.
func (g *gateway) refersToMore(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, referTimeout)
	defer cancel()
	return g.watch.Refer(ctx, g.out.Secrets, g.out.ConfigMaps)
}

// needsAll reports whether more has changed than can be brought up to date by
// itself. Secrets and ConfigMaps to which nothing leads change nothing.
func (g *gateway) needsAll(c *watch.Changes) bool {
	return c.Everything || meet(c.Secrets, g.out.Secrets) || meet(c.ConfigMaps, g.out.ConfigMaps)
}

// isUnrelated reports whether nothing of the changes is in the table.
func (g *gateway) isUnrelated(c *watch.Changes) bool {
	if len(c.HTTPRoutes)+len(c.GRPCRoutes)+len(c.Ingresses)+len(c.Services) > 0 {
		return false
	}
	for s := range c.Moved {
		if g.out.Uses(s) {
			return false
		}
	}
	return true
}

// meet reports whether two sets have something in common.
func meet[T comparable](a, b map[T]struct{}) bool {
	for k := range a {
		if _, both := b[k]; both {
			return true
		}
	}
	return false
}

// bind is where the engine listens for a Gateway's port: the target of its
// Service's port, which the controller has chosen.
func (g *gateway) bind(name types.NamespacedName, port uint16) netip.AddrPort {
	s := g.objects.Services[types.NamespacedName{Namespace: name.Namespace, Name: ingress.ServiceName(name.Name)}]
	if s == nil || s.Labels[gatewayv1.GatewayNameLabelKey] != name.Name {
		return netip.AddrPort{}
	}
	for _, p := range s.Spec.Ports {
		target := p.TargetPort.IntValue()
		if uint16(p.Port) != port || p.Protocol != corev1.ProtocolTCP || target < ingress.FirstPort || target > ingress.LastPort {
			continue
		}
		// Whoever may write the Service may name another Gateway's port: who has it, keeps it.
		if socket := fmt.Sprintf("%s:%d", name, port); g.hold(socket, uint16(target)) {
			return netip.AddrPortFrom(anyAddress(), uint16(target))
		}
	}
	return netip.AddrPort{}
}

// hold reports whether a socket may have a port: nobody else has it, or who had it has
// another one now.
func (g *gateway) hold(socket string, target uint16) bool {
	if holder := g.holders[target]; holder != "" && holder != socket && g.wants(holder, target) {
		return false
	}
	for other, s := range g.holders {
		if s == socket && other != target {
			delete(g.holders, other)
		}
	}
	if g.holders == nil {
		g.holders = map[uint16]string{}
	}
	g.holders[target] = socket
	return true
}

// wants reports whether a socket's Service still has a port for it.
func (g *gateway) wants(socket string, target uint16) bool {
	gateway, number, _ := strings.Cut(socket, ":")
	namespace, name, _ := strings.Cut(gateway, "/")
	s := g.objects.Services[types.NamespacedName{Namespace: namespace, Name: ingress.ServiceName(name)}]
	return s != nil && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return strconv.Itoa(int(p.Port)) == number && p.TargetPort.IntValue() == int(target)
	})
}

// anyAddress is the address for all of the machine's, of both families if it
// has both.
func anyAddress() netip.Addr {
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = l.Close() // nobody knew of it
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func (g *gateway) endpoints(service types.NamespacedName, port *corev1.ServicePort) []model.Endpoint {
	var list []model.Endpoint
	for _, b := range g.watch.ReadyBackends(service, port) {
		list = append(list, model.Endpoint{Addr: netip.AddrPortFrom(b.Addr, b.Port), Weight: int(b.Weight)})
	}
	return list
}
