package watch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/netns"
)

// Connections that began while somebody read, and of which the end is to be told, are
// looked for in the connection table this often, and no more of them at a time. What is
// made of a packet is known in the table shortly after it has come.
const (
	lookInterval = time.Second
	mostOpen     = 1 << 16
	decidedAfter = 20 * time.Millisecond
)

// connections follows connections at a node.
type connections struct {
	watch   *Watch
	to      flow.Listener
	waiting []packet
	open    map[uint64]*opened
	full    bool // it was said that no more are followed
}

// packet is one that may have begun a connection.
type packet struct {
	Event
	came time.Time
}

// opened is a connection of the packet path that hasn't ended.
type opened struct {
	event           flow.Event
	client, answers watchTuple
}

// Connections tells of connections that begin, end and are refused at the node of the
// calling thread's network namespace, until ctx is done.
func Connections(ctx context.Context, dir, cgroup string, to flow.Listener) (err error) {
	w, err := Open(dir, cgroup, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if lacks := w.Lacks(); lacks != "" {
		to.Note(lacks)
	}
	to.Begin()
	c := &connections{watch: w, to: to, open: map[uint64]*opened{}}
	return c.run(ctx)
}

func (c *connections) run(ctx context.Context) error {
	next := time.Now().Add(lookInterval)
	for ctx.Err() == nil {
		e, err := c.watch.Next(time.Now().Add(decidedAfter))
		switch {
		case err == nil && e.What == Enters:
			c.waiting = append(c.waiting, packet{e, time.Now()})
		case err == nil:
			c.record(e)
		case errors.Is(err, ErrLost):
			c.to.Note(err.Error())
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		if err := c.decide(); err != nil {
			return err
		}
		if time.Now().After(next) {
			if err := errors.Join(c.watch.Follow(), c.look()); err != nil {
				return err
			}
			next = time.Now().Add(lookInterval)
		}
	}
	return nil
}

// record makes an event of what became of a socket.
func (c *connections) record(e Event) {
	f := flow.Event{Time: time.Now(), Proto: e.Proto, Client: e.Client, Frontend: e.To, Backend: e.Backend}
	switch e.What {
	case Connects, Sends:
		f.Kind, f.Client = flow.Began, sourceOf(e)
	case Established:
		f.Kind, f.Replied = flow.Began, true
	case Failed:
		f.Kind = flow.Ended
		if syscall.Errno(e.Errno) == syscall.ECONNREFUSED {
			f.Kind, f.Replied, f.Reason = flow.Refused, true, "the endpoint refused"
		}
	case Closed:
		f.Kind, f.Replied, f.Counted, f.In, f.Out = flow.Ended, true, true, e.In, e.Out
	default:
		return
	}
	c.to.Event(f)
}

// conns opens the connection table; nil if there is none.
func (c *connections) conns() (*maps.Resizable, error) {
	return maps.OpenResizable(c.watch.dir, maps.ConnsMap)
}

// decide tells what became of packets that have come a while ago: those that the
// connection table has are forwarded.
func (c *connections) decide() error {
	if len(c.waiting) == 0 || time.Since(c.waiting[0].came) < decidedAfter {
		return nil
	}
	table, err := c.conns()
	if err != nil || table == nil {
		return err
	}
	for len(c.waiting) > 0 && time.Since(c.waiting[0].came) >= decidedAfter {
		p := c.waiting[0]
		c.waiting = c.waiting[1:]
		f := flow.Event{Kind: flow.Dropped, Time: p.came, Proto: p.Proto, Client: p.Client, Frontend: p.To}
		var client watchConn
		if table.Lookup(&p.tuple, &client) != nil || client.has(watchTraitsTO_CLIENT) {
			c.to.Event(f)
			continue
		}
		if c.open[client.Id] != nil {
			continue // its first packet was sent again
		}
		f.Kind, f.Backend = flow.Began, addrPort(client.To.Dst.Word, client.To.Dport)
		c.keep(&client, p, f)
		c.to.Event(f)
	}
	return table.Close()
}

// keep has the end of a connection looked for.
func (c *connections) keep(client *watchConn, p packet, f flow.Event) {
	if len(c.open) >= mostOpen {
		if !c.full {
			c.full = true
			c.to.Note(fmt.Sprintf("of more than %d connections at a time, the end isn't told", mostOpen))
		}
		return
	}
	answers := client.To // the entry of answers: see insert_reply_entry in packet/bpf/begin.h
	answers.Src, answers.Dst, answers.Sport, answers.Dport = client.To.Dst, client.To.Src, client.To.Dport, client.To.Sport
	answers.Hook = atEgress
	if client.has(watchTraitsOF_NODE_SOCKET) {
		answers.Hook = atIngress
	}
	c.open[client.Id] = &opened{event: f, client: p.tuple, answers: answers}
}

// look tells of connections that have ended since.
func (c *connections) look() error {
	if len(c.open) == 0 {
		return nil
	}
	table, err := c.conns()
	if err != nil || table == nil {
		return err
	}
	for id, o := range c.open {
		var client, answers watchConn
		steps := uint8(0)
		there := table.Lookup(&o.client, &client) == nil && client.Id == id
		if table.Lookup(&o.answers, &answers) == nil && answers.Id == id {
			steps = answers.Steps
			o.event.Replied = o.event.Replied || steps&stepUsed != 0
		}
		if there && (client.Steps|steps)&stepResets == 0 && client.Steps&steps&stepCloses == 0 {
			continue
		}
		delete(c.open, id)
		o.event.Kind, o.event.Took, o.event.Time = flow.Ended, time.Since(o.event.Time), time.Now()
		c.to.Event(o.event)
	}
	return table.Close()
}

// sourceOf is where a datagram socket sends from: the kernel chooses the address when
// it sends, by the route of its network namespace.
func sourceOf(e Event) netip.AddrPort {
	a := e.Client.Addr()
	if a.IsValid() && !a.IsUnspecified() {
		return e.Client
	}
	ns, err := netns.OfProcess(e.PID)
	if err != nil {
		return e.Client
	}
	defer ns.Close() //nolint:errcheck // only looked into
	var routes []netlink.Route
	_ = ns.Do(func() (err error) { // without an answer, the address stays unknown
		routes, err = netlink.RouteGet(e.Backend.Addr().AsSlice())
		return err
	})
	if len(routes) == 0 {
		return e.Client
	}
	a, _ = netip.AddrFromSlice(routes[0].Src)
	return netip.AddrPortFrom(a.Unmap(), e.Client.Port())
}
