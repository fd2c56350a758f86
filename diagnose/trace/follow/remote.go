package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/internal/nftrace"
)

// tracing is a running trace of a node: in this process, or by the node's agent.
type tracing interface {
	Next(deadline time.Time) (nftrace.Event, error)
	Close() error
}

// remoteTrace is a trace by the agent of a node elsewhere.
type remoteTrace struct {
	node   string
	stop   context.CancelFunc
	lines  chan trace.Line
	ended  chan error // why no more lines come
	names  *toldNames
	drops  []trace.Drop
	result *trace.NodeResult // of the connection that the agent was asked to make
	notes  []string
}

// beginTimeout is how long an agent has time to begin a trace.
const beginTimeout = 5 * time.Second

// farSettle is settle for a node elsewhere, whose news take time to come.
const farSettle = 500 * time.Millisecond

// startRemote has an agent begin to follow packets.
func startRemote(ctx context.Context, agent *agentlink.Found, r trace.Request) (*remoteTrace, error) {
	ctx, cancel := context.WithCancel(ctx)
	t := &remoteTrace{
		node: agent.Name(), stop: cancel, lines: make(chan trace.Line, 4096), ended: make(chan error, 1),
		names: &toldNames{interfaces: map[int]string{}, rules: map[ruleKey]string{}, bases: map[ruleKey]nftrace.Base{}},
	}
	go func() {
		t.ended <- agent.Trace(ctx, r, func(l trace.Line) {
			select {
			case t.lines <- l:
			case <-ctx.Done():
			}
		})
	}()
	tooLate := time.After(beginTimeout)
	for {
		select {
		case l := <-t.lines:
			if l.Began {
				return t, nil
			}
			t.take(l)
		case err := <-t.ended:
			cancel()
			if err == nil {
				err = errors.New("the trace ended before it began")
			}
			return nil, err
		case <-tooLate:
			cancel()
			return nil, fmt.Errorf("the agent at %s doesn't begin the trace in %s", agent.At, beginTimeout)
		}
	}
}

// Next implements tracing.
func (t *remoteTrace) Next(deadline time.Time) (nftrace.Event, error) {
	timeout := time.After(time.Until(deadline))
	for {
		select {
		case l := <-t.lines:
			if l.Event != nil {
				t.names.learn(l.Event)
				return l.Event.Event, nil
			}
			t.take(l)
			if l.Result != nil { // who reads looks whether it is over
				return nftrace.Event{}, os.ErrDeadlineExceeded
			}
		case err := <-t.ended:
			t.ended <- err
			if err == nil {
				err = errors.New("the trace ended")
			}
			return nftrace.Event{}, err
		case <-timeout:
			return nftrace.Event{}, os.ErrDeadlineExceeded
		}
	}
}

// take takes a line in that is no event.
func (t *remoteTrace) take(l trace.Line) {
	switch {
	case l.Drop != nil:
		t.drops = append(t.drops, trace.Drop{Node: t.node, Reason: l.Drop.Reason, Source: l.Drop.Source, Destination: l.Drop.Destination})
	case l.Result != nil:
		t.result = l.Result
	case l.Note != "":
		t.notes = append(t.notes, "node "+t.node+": "+l.Note)
	}
}

// Close implements tracing. The agent takes away what it needed.
func (t *remoteTrace) Close() error {
	t.stop()
	return nil
}

// ruleKey tells rules apart, and with handle 0 chains.
type ruleKey struct {
	family, table, chain string
	handle               uint64
	legacy               bool // of iptables-legacy
}

func keyOf(e nftrace.Event) ruleKey {
	return ruleKey{e.Family, e.Table, e.Chain, e.Handle, e.Legacy != nil}
}

// toldNames is trace.Namer by what an agent told.
type toldNames struct {
	interfaces map[int]string
	rules      map[ruleKey]string
	bases      map[ruleKey]nftrace.Base
}

func (n *toldNames) learn(e *trace.Event) {
	if e.InName != "" {
		n.interfaces[e.In] = e.InName
	}
	if e.OutName != "" {
		n.interfaces[e.Out] = e.OutName
	}
	if e.Text != "" {
		n.rules[keyOf(e.Event)] = e.Text
	}
	if e.Base != nil && e.Legacy == nil {
		n.bases[ruleKey{family: e.Family, table: e.Table, chain: e.Chain}] = *e.Base
	}
}

// Interface implements trace.Namer.
func (n *toldNames) Interface(index int) string {
	if name := n.interfaces[index]; name != "" {
		return name
	}
	return fmt.Sprintf("interface %d", index)
}

// Rule implements trace.Namer.
func (n *toldNames) Rule(e nftrace.Event) string {
	return n.rules[keyOf(e)]
}

// Base implements trace.Namer.
func (n *toldNames) Base(e nftrace.Event) (nftrace.Base, bool) {
	if e.Legacy != nil {
		return *e.Legacy, true
	}
	b, ok := n.bases[ruleKey{family: e.Family, table: e.Table, chain: e.Chain}]
	return b, ok
}

// isElsewhere reports whether the node is watched by its agent on another machine.
func (t *tracer) isElsewhere() bool { return t.agent != nil && !t.agent.IsLocal() }

// sendElsewhere has the node's agent make a connection, and follows it.
func (t *tracer) sendElsewhere(ctx context.Context) error {
	key := t.keys[0]
	frontend := netip.AddrPortFrom(key.Addr, key.Port)
	request := trace.Request{Replies: t.follows(), For: t.request.Timeout + 2*beginTimeout}
	request.Send = &trace.Send{Proto: key.Proto, To: frontend, Timeout: t.request.Timeout}
	switch from := t.question.From; {
	case from.Kind == "" || from.Kind == "node" && from.Name == t.report.Node:
	case from.Kind == "node":
		return fmt.Errorf("--send: node %s isn't the one that is watched", from.Name)
	default:
		request.Send.From = from.Addr
	}
	for again := 0; ; again++ {
		err := t.sendFrom(ctx, request, randomPort())
		if again == 3 || err == nil || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
}

// randomPort is a source port, which other nodes must know before the connection is
// made.
func randomPort() uint16 { return uint16(32768 + rand.IntN(28000)) } //nolint:gosec // no secret

func (t *tracer) sendFrom(ctx context.Context, r trace.Request, port uint16) error {
	key := t.keys[0]
	r.Port, r.Send.Port = port, port
	flow := nftrace.Flow{Proto: key.Proto, Client: nftrace.Any(key.Addr.Is6(), port), Frontend: r.Send.To}
	if !t.sees() {
		flow.Frontend = nftrace.Any(key.Addr.Is6(), 0)
	}
	r.Flows = []nftrace.Flow{flow}
	defer t.openMore(ctx, key, port)()
	t.report.Began = time.Now()
	session, err := startRemote(ctx, t.agent, r)
	if err != nil {
		return err
	}
	t.names = session.names
	err = t.collect(session, func() bool { return session.result != nil })
	if session.result == nil {
		return errors.Join(err, session.Close())
	}
	t.report.Result = resultOf(session.result.Failed(), session.result.Took)
	t.report.Pending = append(t.report.Pending, session.drops...)
	t.report.NotChecked = append(t.report.NotChecked, session.notes...)
	t.connection(key.Proto, t.clientOf(session.result.Client), r.Send.To)
	return errors.Join(err, session.Close(), t.readOthers())
}

// clientOf is the connection's source as the node saw it, or as its socket says: one
// that was refused has forgotten it.
func (t *tracer) clientOf(said netip.AddrPort) netip.AddrPort {
	for _, e := range t.events {
		if e.Passed == nftrace.Begins && !e.Reply && e.Header != nil {
			return e.Header.Source
		}
	}
	return said
}

// mostHops is how many other nodes are followed.
const mostHops = 16

// hops are the agents of other nodes: all, or, if there are very many, those of nodes
// that may be on the way.
func (t *tracer) hops(all []agentlink.Found) []*hop {
	var list []*hop
	for i := range all {
		if all[i].Err == nil && all[i].Status.Node != t.agent.Status.Node {
			list = append(list, &hop{agent: all[i]})
		}
	}
	if len(list) <= mostHops {
		return list
	}
	holding := t.objects.NodesOf(t.question.Target)
	list = slices.DeleteFunc(list, func(h *hop) bool { return !holding[h.agent.Status.Node] })
	if n := len(list) - mostHops; n > 0 {
		t.report.NotChecked = append(t.report.NotChecked, fmt.Sprintf("%d more nodes that hold endpoints", n))
		list = list[:mostHops]
	}
	return list
}
