package follow

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/compare"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/internal/drops"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/internal/nftrace"
	"github.com/fairway-net/fairway/model"
)

// hop is another node that the connection may pass.
type hop struct {
	agent   agentlink.Found
	node    *netns.NS
	session *nftrace.Session
	remote  *remoteTrace // in place of node and session, for a node elsewhere
	drops   *drops.Watch
	events  []nftrace.Event
}

// sees reports whether netfilter sees packets to the frontend: in ebpf mode they have
// become packets to the endpoint before.
func (t *tracer) sees() bool { return t.agent == nil || !compare.KindOf(*t.agent).BeforeNetfilter }

// openMore has the kernels say what they drop, other nodes what they see of packets from
// the port, and the data plane what it decides, where conntrack doesn't know. What can't be
// had is noted: the trace goes on.
func (t *tracer) openMore(ctx context.Context, key model.Key, port uint16) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	if !t.isElsewhere() {
		t.drops = t.openDrops(t.node, port, t.report.Node)
	}
	failed := make([]error, len(t.others))
	var group sync.WaitGroup
	for i, h := range t.others {
		group.Go(func() { failed[i] = h.open(ctx, key, port) })
	}
	group.Wait()
	for i, h := range t.others {
		if failed[i] != nil {
			t.report.NotChecked = append(t.report.NotChecked, fmt.Sprintf("node %s: %v", h.agent.Status.Node, failed[i]))
			continue
		}
		if h.session != nil && h.session.Missing() != nil {
			t.report.NotChecked = append(t.report.NotChecked, fmt.Sprintf("node %s: %v", h.agent.Status.Node, h.session.Missing()))
		}
		if h.node != nil {
			h.drops = t.openDrops(h.node, port, h.agent.Status.Node)
		}
	}
	if t.agent != nil && !t.follows() {
		ready := make(chan struct{})
		t.told = &planeEvents{ready: ready, began: sync.OnceFunc(func() { close(ready) })}
		go t.told.read(ctx, t.agent)
		t.told.wait()
	}
	return func() {
		cancel()
		closeQuietly(t.drops)
		for _, h := range t.others {
			h.close()
		}
	}
}

// closeQuietly ends a watch, if there is one: nothing depends on how it ends.
func closeQuietly(w *drops.Watch) {
	if w != nil {
		_ = w.Close()
	}
}

func (t *tracer) openDrops(ns *netns.NS, port uint16, node string) (w *drops.Watch) {
	err := ns.Do(func() (err error) {
		w, err = drops.Open(drops.Query{Port: port, Answers: true})
		return err
	})
	if err != nil {
		t.report.NotChecked = append(t.report.NotChecked, fmt.Sprintf("what the kernel of %s drops: %v", node, err))
		return nil
	}
	return w
}

// open begins to follow packets on the node.
func (h *hop) open(ctx context.Context, key model.Key, port uint16) (err error) {
	flow := nftrace.Flow{Proto: key.Proto, Client: nftrace.Any(key.Addr.Is6(), port), Frontend: nftrace.Any(key.Addr.Is6(), 0)}
	if !h.agent.IsLocal() {
		h.remote, err = startRemote(ctx, &h.agent, trace.Request{Flows: []nftrace.Flow{flow}, Port: port})
		return err
	}
	if h.node, err = netns.OfProcess(h.agent.Status.PID); err != nil {
		return err
	}
	return h.node.Do(func() error {
		h.session, err = nftrace.Open([]nftrace.Flow{flow}, false)
		return err
	})
}

func (h *hop) close() {
	if h.remote != nil {
		_ = h.remote.Close() // it has no more to say
	}
	if h.session != nil {
		_ = h.session.Close() // with this process it would end, too
	}
	closeQuietly(h.drops)
	if h.node != nil {
		_ = h.node.Close() // likewise
	}
}

// readOthers reads what the other nodes have seen.
func (t *tracer) readOthers() error {
	until := time.Now().Add(farSettle) // for all of them together
	for _, h := range t.others {
		if err := h.read(until); err != nil {
			return err
		}
		if h.remote != nil {
			t.report.Pending = append(t.report.Pending, h.remote.drops...)
			t.report.NotChecked = append(t.report.NotChecked, h.remote.notes...)
		}
	}
	if t.drops != nil {
		t.report.Pending = append(t.report.Pending, readDrops(t.report.Node, t.drops)...)
	}
	for _, h := range t.others {
		if h.drops != nil {
			t.report.Pending = append(t.report.Pending, readDrops(h.agent.Status.Node, h.drops)...)
		}
	}
	return nil
}

// read reads what the node has seen.
func (h *hop) read(until time.Time) error {
	var session tracing = h.session
	switch {
	case h.remote != nil:
		session = h.remote
	case h.session == nil:
		return nil
	default:
		until = time.Now().Add(settle)
	}
	for {
		e, err := session.Next(until)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err == nil {
			h.events = append(h.events, e)
		} else if !errors.Is(err, nftrace.ErrLost) {
			return err
		}
		if h.remote == nil {
			until = time.Now().Add(settle)
		}
	}
}

func readDrops(node string, w *drops.Watch) (list []trace.Drop) {
	for {
		d, err := w.Next(time.Now().Add(time.Millisecond))
		if err != nil {
			return list
		}
		list = append(list, trace.Drop{Node: node, Reason: d.Reason, Source: d.Source, Destination: d.Destination})
	}
}

// describeOthers puts into words what other nodes have seen, once the endpoint is known.
func (t *tracer) describeOthers() error {
	var errs []error
	for _, h := range t.others {
		if len(h.events) == 0 {
			continue
		}
		errs = append(errs, describeAt(h, t.report))
	}
	t.report.TakeDrops()
	if e := t.told.of(t.report.Client); e != nil {
		line := string(e.Kind)
		if e.Backend.IsValid() {
			line += " to " + e.Backend.String()
		}
		if e.Reason != "" {
			line += ": " + e.Reason
		}
		t.report.Plane = append(t.report.Plane, line)
	}
	return errors.Join(errs...)
}

func describeAt(h *hop, report *trace.Report) error {
	if h.remote != nil {
		report.AddPacketsOf(h.agent.Status.Node, planeOf(h.agent), h.events, h.remote.names)
		return nil
	}
	ns, err := netns.OfProcess(h.agent.Status.PID)
	if err != nil {
		return err
	}
	err = ns.Do(func() error {
		return withNamer(report, func(n *namer) { report.AddPacketsOf(h.agent.Status.Node, planeOf(h.agent), h.events, n) })
	})
	return errors.Join(err, ns.Close())
}

// planeEvents are what the data plane tells while the connection is made.
type planeEvents struct {
	ready chan struct{}
	began func() // closes ready
	mu    sync.Mutex
	all   []flow.Event
}

// attachTimeout is how long the data plane may take to begin.
const attachTimeout = 3 * time.Second

func (p *planeEvents) read(ctx context.Context, agent *agentlink.Found) {
	_ = agent.Flows(ctx, true, flow.Listener{ // without it the endpoint stays unknown, which the report shows
		Event: func(e flow.Event) { p.mu.Lock(); defer p.mu.Unlock(); p.all = append(p.all, e) },
		Note:  func(string) {},
		Began: p.began,
	})
	p.began()
}

// wait gives the data plane time to begin.
func (p *planeEvents) wait() {
	select {
	case <-p.ready:
	case <-time.After(attachTimeout):
	}
}

// of is the first event of a client; nil if there is none.
func (p *planeEvents) of(client netip.AddrPort) *flow.Event {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range p.all {
		if e.Client == client {
			return &p.all[i]
		}
	}
	return nil
}
