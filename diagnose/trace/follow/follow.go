// Package follow follows one connection through the rules of its node, and of the nodes that it
// passes: here, in the network namespaces of this machine's agents, or by agents elsewhere.
//
//	follow.go   one trace, from the question to the report
//	choose.go   which packets, on which node
//	watch.go    a connection that somebody makes
//	remote.go   a node whose agent traces
//	hops.go     other nodes that the connection may pass
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/compare"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/internal/drops"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/internal/nftrace"
	"github.com/fairway-net/fairway/model"
)

// Request says which connection to follow.
type Request struct {
	Source *collect.Source
	Target string // as typed: svc/NAME[:PORT] or ADDRESS:PORT
	From   string // who connects, as typed; "" for anybody
	Node   string // to watch; "" for that of From
	Send   bool   // make a connection, in place of waiting for one
	// Wait is how long to wait for somebody's connection, and Timeout for an answer.
	Wait, Timeout time.Duration
	// NotRoot says why this machine can't be traced; nil if it can.
	NotRoot error
	// Say is told what is waited for.
	Say io.Writer
}

// Connection follows a connection, and says what became of it.
func Connection(ctx context.Context, r Request) (*trace.Report, error) {
	q, err := explain.ParseQuestion(r.Target, r.From, r.Source.Namespace)
	if err != nil {
		return nil, err
	}
	t := &tracer{request: r, question: q}
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	err = t.run(ctx)
	if t.node != nil {
		if closing := t.node.Close(); err == nil {
			err = closing
		}
	}
	return t.report, err
}

// tracer follows one connection.
type tracer struct {
	request  Request
	question explain.Question
	objects  *explain.Objects
	keys     []model.Key      // what the connection may be made to
	agent    *agentlink.Found // of the node, nil if none answers
	view     explain.View     // what it makes of the keys
	node     *netns.NS        // where the rules are
	report   *trace.Report

	names  *toldNames // what a node elsewhere has told; else nil
	events []nftrace.Event
	drops  *drops.Watch // on the node; nil if the kernel can't tell
	others []*hop       // other nodes whose agents answer here
	told   *planeEvents // what the data plane says; nil where conntrack does
}

// settle is how long nothing more must come before a packet's way counts as whole: the
// kernel tells of each step as it happens.
const settle = 50 * time.Millisecond

// enter opens the node's network namespace: the agent's, or this process's.
func (t *tracer) enter() (err error) {
	if t.isElsewhere() {
		return nil
	}
	if t.agent == nil {
		t.node, err = netns.Current()
		return err
	}
	t.node, err = netns.OfProcess(t.agent.Status.PID)
	return err
}

// run traces, and concludes.
func (t *tracer) run(ctx context.Context) error {
	follow := t.watch
	switch {
	case t.request.Send && t.isElsewhere():
		follow = t.sendElsewhere
	case t.request.Send:
		follow = t.send
	}
	if err := follow(ctx); err != nil {
		return err
	}
	if err := t.describe(); err != nil {
		return err
	}
	t.readPlane(ctx)
	err := t.describeOthers()
	t.report.Conclude()
	return err
}

// follows reports whether answers can be followed: by conntrack, where the mode has
// its connections there.
func (t *tracer) follows() bool { return t.agent != nil && compare.KindOf(*t.agent).InConntrack }

// planeOf is the same for a report.
func planeOf(a agentlink.Found) trace.Plane {
	return trace.Plane{Mode: a.Status.Mode, KubeProxyNames: len(compare.KindOf(a).KubeProxyModes) > 0}
}

// open begins to follow flows on the node.
func (t *tracer) open(ctx context.Context, flows []nftrace.Flow) (tracing, error) {
	if t.isElsewhere() {
		s, err := startRemote(ctx, t.agent, trace.Request{Flows: flows, Replies: t.follows(), For: min(trace.Longest, t.request.Wait+t.request.Timeout+beginTimeout)})
		if err != nil {
			return nil, err
		}
		t.names = s.names
		return s, nil
	}
	var s *nftrace.Session
	err := t.node.Do(func() (err error) {
		s, err = nftrace.Open(flows, t.follows())
		return err
	})
	if err != nil {
		return nil, err
	}
	if missing := s.Missing(); missing != nil {
		t.report.NotChecked = append(t.report.NotChecked, missing.Error())
	}
	return s, nil
}

// source is the network namespace that the connection is made from.
func (t *tracer) source() (*netns.NS, error) {
	from := t.question.From
	switch {
	case from.Kind == "" || from.Kind == "node" && from.Name == t.report.Node:
		return netns.OfPath(fmt.Sprintf("/proc/self/fd/%d", t.node.Fd()))
	case from.Kind == "node":
		return nil, fmt.Errorf("--send: node %s isn't the one that is watched", from.Name)
	}
	if ns := probe.NamespaceNear(from.Addr, t.node); ns != nil {
		return ns, nil
	}
	return nil, fmt.Errorf("--send: the network namespace of %s (%s) isn't on this machine, or can't be entered: leave out --send and connect there", from, from.Addr)
}

// send makes a connection, and follows it.
func (t *tracer) send(ctx context.Context) error {
	key := t.keys[0]
	if len(t.keys) > 1 {
		t.report.Notes = append(t.report.Notes, fmt.Sprintf("of %d addresses and ports, %s was tried; name another as svc/NAME:PORT or ADDRESS:PORT", len(t.keys), key))
	}
	from, err := t.source()
	if err != nil {
		return err
	}
	attempt, err := probe.NewAttempt(from, key.Proto, netip.AddrPortFrom(key.Addr, key.Port))
	if err = errors.Join(err, from.Close()); err != nil {
		return err
	}
	frontend := netip.AddrPortFrom(key.Addr, key.Port)
	flow := nftrace.Flow{Proto: key.Proto, Client: nftrace.Any(key.Addr.Is6(), attempt.Port()), Frontend: frontend}
	if !t.sees() {
		flow.Frontend = nftrace.Any(key.Addr.Is6(), 0)
	}
	session, err := t.open(ctx, []nftrace.Flow{flow})
	if err != nil {
		return errors.Join(err, attempt.Close())
	}
	defer t.openMore(ctx, key, attempt.Port())()
	t.report.Began = time.Now()
	done := make(chan *trace.Result, 1)
	go func() {
		failed := attempt.Make(ctx, t.request.Timeout)
		done <- resultOf(failed, time.Since(t.report.Began))
	}()
	err = t.collect(session, func() bool {
		select {
		case t.report.Result = <-done:
			return true
		default:
			return false
		}
	})
	t.connection(key.Proto, t.clientOf(attempt.Client()), frontend)
	return errors.Join(err, session.Close(), attempt.Close(), t.readOthers())
}

// resultOf says how an attempt ended.
func resultOf(err error, took time.Duration) *trace.Result {
	r := &trace.Result{Outcome: trace.Answered, Took: took}
	switch {
	case err == nil:
	case errors.Is(err, syscall.ECONNREFUSED):
		r.Outcome = trace.Refused
	case errors.Is(err, probe.ErrNoAnswer):
		r.Outcome = trace.NoAnswer
	default:
		r.Outcome, r.Error = trace.NoAnswer, err.Error()
	}
	return r
}

// collect reads events until it is over and no more come.
func (t *tracer) collect(s tracing, over func() bool) error {
	ended, wait, last := false, settle, time.Time{}
	if t.isElsewhere() {
		wait = farSettle
	}
	const longest = 4 // pauses
	for {
		e, err := s.Next(time.Now().Add(wait))
		switch {
		case err == nil:
			t.events = append(t.events, e)
		case errors.Is(err, nftrace.ErrLost):
			t.report.Notes = append(t.report.Notes, err.Error())
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case ended:
			return nil
		}
		if !ended && over() {
			ended, last = true, time.Now().Add(longest*wait)
		}
		if ended && time.Now().After(last) {
			return nil // other connections go on
		}
	}
}

// connection notes which connection was followed, and what the agent makes of it.
func (t *tracer) connection(proto model.Protocol, client, frontend netip.AddrPort) {
	t.report.Connection(proto, client, frontend)
	key := model.Key{Addr: frontend.Addr(), Port: frontend.Port(), Proto: proto}.String()
	var found []*explain.Decision
	for i := range t.view.Decisions {
		if t.view.Decisions[i].Frontend == key {
			found = append(found, &t.view.Decisions[i])
		}
	}
	if len(found) > 0 {
		t.report.Decided(found[0])
	}
}

// describe puts what was seen into words, and finds out who was chosen.
func (t *tracer) describe() error {
	if t.isElsewhere() {
		if t.names != nil {
			t.report.AddPackets(t.events, t.names)
		}
		return nil
	}
	return t.node.Do(func() error {
		return withNamer(t.report, func(n *namer) { t.report.AddPackets(t.events, n) })
	})
}

// withNamer gives names in the network namespace of the calling thread.
func withNamer(report *trace.Report, do func(*namer)) error {
	chains, err := nftrace.ReadChains()
	if err != nil {
		return err
	}
	n := &namer{chains: chains, interfaces: map[int]string{}, report: report}
	list, err := net.Interfaces()
	for _, one := range list {
		n.interfaces[one.Index] = one.Name
	}
	do(n)
	return errors.Join(err, chains.Close())
}

// namer is trace.Namer by what the node's kernel says.
type namer struct {
	chains     *nftrace.Chains
	interfaces map[int]string
	report     *trace.Report
}

func (n *namer) Interface(index int) string {
	if name := n.interfaces[index]; name != "" {
		return name
	}
	return fmt.Sprintf("interface %d", index)
}

func (n *namer) Rule(e nftrace.Event) string {
	text, err := n.chains.Rule(e)
	if err != nil && !slices.ContainsFunc(n.report.NotChecked, func(said string) bool { return strings.Contains(said, e.Chain) }) {
		n.report.NotChecked = append(n.report.NotChecked, err.Error())
	}
	return text
}

func (n *namer) Base(e nftrace.Event) (nftrace.Base, bool) { return n.chains.Base(e) }

// readPlane finds out which endpoint was chosen: from conntrack, or else from where
// the packet went.
func (t *tracer) readPlane(ctx context.Context) {
	endpoint, source := t.fromPackets()
	if t.follows() && t.report.Client.IsValid() {
		err := t.agent.Flows(ctx, false, flow.Listener{
			Note: func(string) {},
			Event: func(f flow.Event) {
				if f.Client == t.report.Client && f.Frontend == t.report.Frontend && f.Proto.String() == t.report.Protocol {
					endpoint = f.Backend
					if f.Source.IsValid() {
						source = f.Source
					}
				}
			},
		})
		if err != nil {
			t.report.NotChecked = append(t.report.NotChecked, err.Error())
		}
	}
	if e := t.told.of(t.report.Client); e != nil && e.Backend.IsValid() {
		endpoint = e.Backend
	}
	t.report.Chosen(endpoint, source, t.objects)
}

// fromPackets is where the request was seen last, and from where.
func (t *tracer) fromPackets() (endpoint, source netip.AddrPort) {
	for _, p := range t.report.Packets {
		if !p.Reply {
			source, endpoint = p.End()
			return endpoint, source
		}
	}
	return endpoint, t.report.Client
}
