// Package haproxy is the engine that has haproxy serve a table: Debian 12's 2.6 or
// later, as a process of its own. Its configuration has numbers and names of this
// package's only. Hosts, paths and rules are in maps, endpoints are servers that
// come and go; both change while haproxy runs, so a change costs what it changes.
// What maps can't say (conditions, edits) a fixed Lua program says, by constants.
//
//	engine.go    tables in, sockets up and down
//	plan.go      what a table makes of haproxy: sockets, certificates
//	paths.go     rules to entries of maps
//	plain.go     requests of which nothing has to be changed
//	program.go   rules with conditions, and what they change; lua.go, regexp.go
//	memo.go      what the table before leaves to the next
//	slots.go     pools to backends and servers
//	render.go    the configuration; requests.go what becomes of requests
//	change.go    changes while haproxy runs, and their order
//	reload.go    a new configuration, and haproxy started anew
//	process.go   the process; control.go what it is told
//	access.go    what is told of requests
//	lacks.go     what haproxy can't do
//	fairway.lua  what runs inside haproxy
//
// The listening sockets are the engine's own. A haproxy that is started gets them,
// so none is refused while one is replaced or has crashed.
package haproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/ingress/model"
)

// Options say how the engine serves; the zero value is good.
type Options struct {
	// Program is haproxy; found in PATH (and /usr/sbin) if "".
	Program string
	// Folder is where haproxy's files are, in a folder of their own; the system's for
	// temporary files if "".
	Folder string
	// Drain is how long connections may go on when haproxy is replaced or the engine
	// is closed; a minute if 0.
	Drain time.Duration
	// ProxyFrom are load balancers whose connections begin with a header of the
	// PROXY protocol. Nobody else's may.
	ProxyFrom []netip.Prefix
	// Trusted proxies' X-Forwarded-For is believed.
	Trusted []netip.Prefix
	// PerClient is how many connections a client may have at a time: an address, or a
	// /64 of IPv6. Those of ProxyFrom and Trusted may have any number; 0 lets all.
	PerClient int
	// Access, if not nil, is told of every request, but not of its rule.
	Access func(*model.Access)
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
}

// Engine has haproxy serve a table.
type Engine struct {
	options Options
	log     *slog.Logger
	program string
	folder  string

	mu         sync.Mutex
	inherited  map[netip.AddrPort]*net.TCPListener
	listeners  map[netip.AddrPort]*net.TCPListener
	names      map[netip.AddrPort]string // of sockets
	slots      slots
	table      *model.Table
	plan       *plan
	memos      memos
	structure  string // of the configuration that is served
	leaving    leaving
	process    *process // nil while there is no socket
	replaced   []*process
	ended      []string // names of sockets that are served no more, until haproxy is replaced
	generation int
	closed     bool
	counted    map[string]map[string]uint64 // requests of those that were replaced
	reloads    int
	commands   int64         // that the last table took, for tests
	stop       chan struct{} // closed with the engine
	lines      net.Conn      // of the log; nil if nobody is told
	threads    sync.WaitGroup
}

// ErrMissing says that there is no haproxy on this machine.
var ErrMissing = errors.New("haproxy isn't installed (Debian: apt-get install haproxy)")

// New returns an engine that serves nothing yet.
func New(options Options) (*Engine, error) {
	e := &Engine{
		options: options, log: options.Logger, program: options.Program, listeners: map[netip.AddrPort]*net.TCPListener{},
		names: map[netip.AddrPort]string{}, leaving: leaving{}, counted: map[string]map[string]uint64{}, stop: make(chan struct{}),
	}
	if e.log == nil {
		e.log = slog.Default()
	}
	if e.options.Drain == 0 {
		e.options.Drain = time.Minute
	}
	var err error
	if e.program, err = find(options.Program); err != nil {
		return nil, err
	}
	if e.folder, err = os.MkdirTemp(options.Folder, "fairway-haproxy-"); err != nil {
		return nil, fmt.Errorf("make folder for haproxy: %w", err)
	}
	if err := os.Mkdir(e.folder+"/programs", 0o700); err != nil {
		return nil, fmt.Errorf("make folder for haproxy: %w", err)
	}
	if options.Access != nil {
		if err := e.listenLog(); err != nil {
			return nil, errors.Join(err, os.RemoveAll(e.folder))
		}
	}
	e.threads.Go(e.sweep)
	return e, nil
}

// unreadTimeout is how long a client may take nothing of what it is sent, which the system
// looks after. haproxy has one limit for that and for clients that say nothing, as those of
// streams may for long.
var unreadTimeout = time.Minute

// listen opens a socket of plain TCP. Go's own choice is MPTCP, which knows no such limit.
func listen(at netip.AddrPort) (*net.TCPListener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	l, err := c.Listen(context.Background(), "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l.(*net.TCPListener), nil
}

func find(program string) (string, error) {
	for _, name := range []string{program, "haproxy", "/usr/sbin/haproxy"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		if name == program {
			return "", fmt.Errorf("%w: %s", ErrMissing, program)
		}
	}
	return "", ErrMissing
}

// Inherit has the next table served by listeners that another process has opened.
// Those that it doesn't need are closed.
func (e *Engine) Inherit(listeners map[netip.AddrPort]*net.TCPListener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inherited = listeners
}

// Apply serves a table from now on. The error names the sockets that could not be
// opened, and all others serve; or haproxy's reason, and it serves what it did.
func (e *Engine) Apply(table *model.Table) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		e.lastEndpoints(table)
		return nil
	}
	before := said.Load()
	defer func() { e.commands = said.Load() - before }()
	gone, err := e.open(table)
	for _, l := range gone {
		e.ended = append(e.ended, socketName(l))
	}
	err = errors.Join(err, e.serve(table))
	for _, l := range gone {
		end(l)
	}
	return err
}

// open opens the sockets that are new, and returns those that nobody asks for.
func (e *Engine) open(table *model.Table) (gone []*net.TCPListener, err error) {
	var errs []error
	wanted := map[netip.AddrPort]string{}
	for _, m := range table.Sockets {
		switch {
		case !m.Bind.IsValid():
			continue
		case wanted[m.Bind] != "":
			errs = append(errs, fmt.Errorf("serve %s: %s has the address %s", m.Name, wanted[m.Bind], m.Bind))
			continue
		}
		wanted[m.Bind] = m.Name
		if e.listeners[m.Bind] != nil {
			continue
		}
		l := e.inherited[m.Bind]
		delete(e.inherited, m.Bind)
		if l == nil {
			if l, err = listen(m.Bind); err != nil {
				errs = append(errs, fmt.Errorf("serve %s: %w", m.Name, err))
				continue
			}
		}
		e.listeners[m.Bind] = l
	}
	for bind, l := range e.listeners {
		if wanted[bind] == "" {
			delete(e.listeners, bind)
			gone = append(gone, l)
		}
	}
	for bind, l := range e.inherited {
		delete(e.inherited, bind)
		_ = l.Close() // nobody asks for it any more
	}
	e.names = wanted
	return gone, errors.Join(errs...)
}

// sockets are the names of those that are or were served (proc(5), fd).
func (e *Engine) sockets() map[string]bool {
	out := map[string]bool{}
	for _, l := range e.listeners {
		out[socketName(l)] = true
	}
	for _, name := range e.ended {
		out[name] = true
	}
	return out
}

func socketName(l *net.TCPListener) string {
	var stat unix.Stat_t
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Fstat(int(fd), &stat) }) // number 0 is nobody's
	}
	return fmt.Sprintf("socket:[%d]", stat.Ino)
}

// end closes a listener, also where haproxy still has it.
func end(l *net.TCPListener) {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }) // it is closed in any case
	}
	_ = l.Close() // nothing is lost by an error
}

// served is the table without the sockets that could not be opened.
func (e *Engine) served(table *model.Table) *model.Table {
	out := &model.Table{Pools: table.Pools, Challenges: table.Challenges}
	for _, m := range table.Sockets {
		if m.Bind.IsValid() && e.listeners[m.Bind] != nil && e.names[m.Bind] == m.Name {
			out.Sockets = append(out.Sockets, m)
		}
	}
	return out
}

// serve brings haproxy up to date: by commands where they do.
func (e *Engine) serve(table *model.Table) error {
	served := e.served(table)
	if e.process != nil && e.table != nil && e.table.Challenges == served.Challenges && slices.Equal(e.table.Sockets, served.Sockets) && e.sameValues(served.Pools) {
		return e.endpoints(served)
	}
	next, missing, memos := makePlan(served, &e.slots, &e.memos)
	structure := structureOf(next, &e.options)
	if e.process != nil && !missing && structure == e.structure {
		err := e.change(next)
		if err == nil {
			e.table, e.plan, e.memos = served, next, *memos
			return nil
		}
		e.log.Warn("haproxy could not be changed while it runs; starting it anew", "error", err)
	}
	if err := e.reload(served, next, structure); err != nil {
		return err
	}
	e.memos = *memos
	return nil
}

// sameValues reports whether no value of a map has changed with the pools.
func (e *Engine) sameValues(pools map[string]*model.Pool) bool {
	if len(pools) != len(e.table.Pools) {
		return false
	}
	for name, p := range pools {
		was := e.table.Pools[name]
		if was == p {
			continue
		}
		if was == nil || was.Invalid != p.Invalid || was.Protocol != p.Protocol || was.TLS != p.TLS || was.Proxy != p.Proxy || was.Algorithm != p.Algorithm {
			return false
		}
	}
	return true
}

// withEndpoints is the plan with the endpoints of pools that have changed.
func (e *Engine) withEndpoints(table *model.Table) *plan {
	p := &planner{table: table, slots: &e.slots, out: &plan{kept: map[string]string{}}}
	next := *e.plan
	next.backends = maps.Clone(e.plan.backends)
	for number := range next.backends {
		n := e.slots.owner[number]
		if now := table.Pools[n.pool]; now != e.table.Pools[n.pool] && now != nil {
			next.backends[number] = p.servers(now, n.kind)
		}
	}
	return &next
}

// endpoints changes the servers of pools that have changed, and nothing else.
func (e *Engine) endpoints(table *model.Table) error {
	next := e.withEndpoints(table)
	if err := e.changeServers(next); err != nil {
		e.log.Warn("endpoints could not be changed while haproxy runs; starting haproxy anew", "error", err)
		return e.reload(table, next, e.structure)
	}
	e.table, e.plan = table, next
	return nil
}

// Sockets lists the addresses that are served.
func (e *Engine) Sockets() map[string]netip.AddrPort {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]netip.AddrPort{}
	for bind, l := range e.listeners {
		if a, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
			out[e.names[bind]] = a
		}
	}
	return out
}

// Listeners are those that are served, by the address that the table has for them.
// They stay the engine's.
func (e *Engine) Listeners() map[netip.AddrPort]*net.TCPListener {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.listeners)
}

// Reloads is how often haproxy was started so far.
func (e *Engine) Reloads() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reloads
}

// Close ends new connections at once and all others as Options.Drain says, or when
// the context ends.
func (e *Engine) Close(ctx context.Context) {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.stop)
	}
	sockets := e.sockets()
	for bind, l := range e.listeners {
		delete(e.listeners, bind)
		_ = l.Close() // it may be another process's by now, too
	}
	all := e.replaced
	if e.process != nil {
		e.process.leave(sockets)
		all = append(all, e.process)
	}
	e.mu.Unlock()
	limit := time.NewTimer(e.options.Drain)
	defer limit.Stop()
	for _, p := range all {
		select {
		case <-p.ended:
			continue
		case <-limit.C:
			limit.Reset(0) // for the others
		case <-ctx.Done():
		}
		p.kill()
	}
	if e.lines != nil {
		_ = e.lines.Close() // nobody writes any more
	}
	e.threads.Wait()
	if err := os.RemoveAll(e.folder); err != nil {
		e.log.Warn("haproxy's files could not be removed", "error", err)
	}
}
