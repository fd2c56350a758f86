package userspace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// relay is the process that forwards: listeners, connections, and the table
// that says what goes where.
type relay struct {
	balancer *balancer
	flows    *flows
	traffic  *traffic
	watchers watchers
	// How long a client's UDP session lasts without a datagram, before and
	// after the first answer.
	udpUnanswered, udpAnswered  time.Duration
	dialTimeout, dialAllTimeout time.Duration

	// transparent says that the node's rules lead backends' answers to clients'
	// addresses back here.
	transparent atomic.Bool

	mu                sync.RWMutex
	table             *model.Table
	sockets           map[model.Key]socket
	unopened          map[model.Key]bool                  // sockets that the table wants and that could not be opened
	fronts            map[model.PoolID]map[model.Key]bool // which frontends lead to a pool
	inherited         map[model.Key]*os.File              // listeners of the relay before this one, not yet used
	inheritedSessions map[model.Key][]inheritedSession    // its UDP clients, for listeners not yet used
	retired           bool                                // listeners have been handed on; only connections are left
	most              int                                 // listeners, so that files are left for connections
}

// socket is what is open for a frontend.
type socket interface {
	conn() syscall.Conn
	// freeze ends taking in connections or clients, so that what comes next is
	// somebody else's to take in; it returns when the last has been counted.
	// The relay's lock must not be held.
	freeze()
	// thaw undoes freeze.
	thaw()
	close()
}

func newRelay(scheduler model.Scheduler) *relay {
	return &relay{
		balancer: newBalancer(scheduler), flows: newFlows(), traffic: newTraffic(), udpUnanswered: udpUnanswered, udpAnswered: udpAnswered, dialTimeout: dialTimeout, dialAllTimeout: dialAllTimeout,
		table:   model.NewTable(),
		sockets: map[model.Key]socket{}, fronts: map[model.PoolID]map[model.Key]bool{}, inherited: map[model.Key]*os.File{}, unopened: map[model.Key]bool{}, inheritedSessions: map[model.Key][]inheritedSession{},
		most: mostListeners(),
	}
}

// apply makes the relay forward what the next table says. The error names every
// listener that couldn't be opened; all others are. A delta that makes the table
// anew has listeners tried again that couldn't be opened before.
func (r *relay) apply(d *model.Delta) []unopened {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, next := r.table, d.Apply(r.table)
	changes := next.Since(old)
	r.table = next
	for _, c := range changes.Pools {
		r.poolChanged(c)
	}
	touched := map[model.Key]bool{}
	for _, c := range changes.Frontends {
		touched[c.Key()] = true
		r.index(c.Old, false)
		r.index(c.New, true)
		if c.New == nil {
			r.traffic.forget(c.Key())
		}
		if c.Old != nil && c.New != nil {
			r.flows.endWhere(func(f *flow) bool { return f.key == c.New.Key && !leadsTo(c.New, f.pool) && f.key.Proto == model.UDP })
		}
	}
	for _, c := range changes.Pools {
		for k := range r.fronts[c.ID()] {
			touched[k] = true
		}
	}
	if r.retired {
		return nil
	}
	if d.Anew { // also what failed to open before
		for f := range next.Frontends() {
			touched[f.Key] = true
		}
		for k := range r.sockets {
			touched[k] = true
		}
	}
	return r.open(touched)
}

func (r *relay) listen(k model.Key) (socket, error) {
	file := r.inherited[k]
	delete(r.inherited, k)
	if k.Proto == model.TCP {
		return r.listenTCP(k, file)
	}
	return r.listenUDP(k, file)
}

// open makes a socket of the inherited file, which it closes, or a new one if
// there is none.
func open[Socket, Any any](inherited *os.File, adopt func(*os.File) (Any, error), listen func() (Any, error)) (socket Socket, err error) {
	if inherited == nil {
		opened, err := listen()
		if err != nil {
			return socket, err
		}
		return any(opened).(Socket), nil
	}
	adopted, err := adopt(inherited)
	discard(inherited.Close())
	if err != nil {
		return socket, err
	}
	socket, ok := any(adopted).(Socket)
	if !ok {
		return socket, fmt.Errorf("inherited a %T, not a %T", adopted, socket)
	}
	return socket, nil
}

// exit closes everything, so that nothing answers any more.
func (r *relay) exit() {
	r.closeListeners()
	r.flows.endWhere(func(*flow) bool { return true })
}

// listenConfig binds to addresses that only a route makes local: IPv6 calls
// them non-local (IPV6_FREEBIND, linux/in6.h).
var listenConfig = net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) error {
	var err error
	controlErr := c.Control(func(fd uintptr) {
		level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
		if strings.HasSuffix(network, "6") {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
		}
		err = unix.SetsockoptInt(int(fd), level, option, 1)
	})
	return errors.Join(controlErr, err)
}}

func (r *relay) index(f *model.Frontend, add bool) {
	if f == nil {
		return
	}
	for _, route := range f.Routes {
		keys := r.fronts[route.Pool]
		switch {
		case add && keys == nil:
			r.fronts[route.Pool] = map[model.Key]bool{f.Key: true}
		case add:
			keys[f.Key] = true
		default:
			if delete(keys, f.Key); len(keys) == 0 {
				delete(r.fronts, route.Pool)
			}
		}
	}
}

// current is the table that is forwarded.
func (r *relay) current() *model.Table {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.table
}

// openKeys lists the frontends that have a socket.
func (r *relay) openKeys() []model.Key {
	r.mu.RLock()
	defer r.mu.RUnlock()
	keys := make([]model.Key, 0, len(r.sockets))
	for k := range r.sockets {
		keys = append(keys, k)
	}
	return keys
}
