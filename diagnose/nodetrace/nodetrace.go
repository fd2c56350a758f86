// Package nodetrace is a node's part of a trace that is asked for from elsewhere: it
// follows packets through the node's rules, tells what the kernel drops, and makes the
// connection if it is asked to. What it has in the kernel ends with the request, with
// the process, and after Request.For at the latest.
package nodetrace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/internal/drops"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/internal/nftrace"
	"github.com/fairway-net/fairway/model"
)

// Most is the longest time that a trace takes.
const Most = 10 * time.Minute

// mostFlows bounds what one request follows.
const mostFlows = 64

// Request says what to follow.
type Request struct {
	Flows []nftrace.Flow `json:"flows"`
	// Replies says that answers are followed too; see nftrace.Open.
	Replies bool `json:"replies,omitempty"`
	// Port is that of either end of packets whose drops are told; 0 tells of none.
	Port uint16 `json:"port,omitempty"`
	// Send is a connection to make; nil makes none.
	Send *Send         `json:"send,omitempty"`
	For  time.Duration `json:"for,omitempty"` // Most is the longest, and the default
}

// Send is a connection.
type Send struct {
	From    netip.Addr     `json:"from,omitzero"` // a pod's; none is the node itself
	Port    uint16         `json:"port"`          // of the source
	Proto   model.Protocol `json:"proto"`
	To      netip.AddrPort `json:"to"`
	Timeout time.Duration  `json:"timeout"`
}

// Line is what is told. One of its fields is set.
type Line struct {
	Began  bool        `json:"began,omitempty"` // what happens from now on is told
	Event  *Event      `json:"event,omitempty"`
	Drop   *drops.Drop `json:"drop,omitempty"`
	Result *Result     `json:"result,omitempty"` // of the connection that was made
	Note   string      `json:"note,omitempty"`   // what is missing
	Error  string      `json:"error,omitempty"`
}

// Event is a step of a packet, with the names that only the node knows.
type Event struct {
	nftrace.Event
	InName  string        `json:"inName,omitempty"`
	OutName string        `json:"outName,omitempty"`
	Text    string        `json:"text,omitempty"` // the rule in words
	Base    *nftrace.Base `json:"base,omitempty"` // of its chain, if it is a base chain
	Problem string        `json:"problem,omitempty"`
}

// Result is how the connection that was made has ended.
type Result struct {
	Client  netip.AddrPort `json:"client"`
	Refused bool           `json:"refused,omitempty"`
	Silent  bool           `json:"silent,omitempty"` // nothing came back in time
	Error   string         `json:"error,omitempty"`  // what else happened
	Took    time.Duration  `json:"took"`
}

// Failed is the error that the result stands for; nil if the connection was answered.
func (r *Result) Failed() error {
	switch {
	case r.Refused:
		return syscall.ECONNREFUSED
	case r.Silent:
		return probe.ErrNoAnswer
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// Validate refuses what can't be followed.
func (r *Request) Validate() error {
	switch {
	case len(r.Flows) == 0:
		return errors.New("flows: not given")
	case len(r.Flows) > mostFlows:
		return fmt.Errorf("flows: %d are too many, %d at most", len(r.Flows), mostFlows)
	case r.For < 0 || r.For > Most:
		return fmt.Errorf("for: %s must be at most %s", r.For, Most)
	case r.Send != nil && (r.Send.Port == 0 || !r.Send.To.IsValid() || r.Send.Timeout <= 0 || r.Send.Timeout > Most):
		return errors.New("send: needs a port, an address to connect to, and a timeout")
	}
	for _, f := range r.Flows {
		if !f.Frontend.Addr().IsValid() {
			return errors.New("flows: frontend: not given")
		}
	}
	return nil
}

// Run follows packets in the network namespace of this process until ctx is done.
func Run(ctx context.Context, r Request, tell func(Line)) (err error) {
	if r.For == 0 {
		r.For = Most
	}
	w := &watch{tell: tell}
	defer func() { err = errors.Join(err, w.close()) }()
	ctx, stop := context.WithTimeout(ctx, r.For)
	defer stop()
	if err := w.open(r); err != nil {
		return err
	}
	var made <-chan Result
	tell(Line{Began: true})
	if r.Send != nil {
		made = w.make(ctx, r.Send.Timeout)
	}
	for ctx.Err() == nil {
		if err := w.next(); err != nil {
			return err
		}
		select {
		case result := <-made:
			tell(Line{Result: &result})
		default:
		}
	}
	return nil
}

// watch is a running trace.
type watch struct {
	tell       func(Line)
	session    *nftrace.Session
	chains     *nftrace.Chains
	drops      *drops.Watch
	attempt    *probe.Attempt
	interfaces map[int]string
	making     sync.WaitGroup
}

func (w *watch) open(r Request) (err error) {
	if r.Send != nil {
		if w.attempt, err = attempt(r.Send); err != nil {
			return err
		}
	}
	if w.session, err = nftrace.Open(r.Flows, r.Replies); err != nil {
		return err
	}
	if missing := w.session.Missing(); missing != nil {
		w.tell(Line{Note: missing.Error()})
	}
	if w.chains, err = nftrace.ReadChains(); err != nil {
		return err
	}
	if r.Port != 0 {
		if w.drops, err = drops.Open(drops.Query{Port: r.Port, Answers: true}); err != nil {
			w.tell(Line{Note: fmt.Sprintf("what the kernel drops: %v", err)})
		}
	}
	w.interfaces = map[int]string{}
	list, err := net.Interfaces()
	for _, one := range list {
		w.interfaces[one.Index] = one.Name
	}
	return err
}

// attempt prepares a connection.
func attempt(s *Send) (a *probe.Attempt, err error) {
	node, err := netns.Current()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	from := node
	if s.From.IsValid() {
		if from = probe.NamespaceNear(s.From, node); from == nil {
			return nil, fmt.Errorf("the network namespace of %s isn't on this machine, or can't be entered", s.From)
		}
		defer func() { err = errors.Join(err, from.Close()) }()
	}
	return probe.NewAttemptAt(from, s.Port, s.Proto, s.To)
}

// make makes the connection, and says what became of it.
func (w *watch) make(ctx context.Context, timeout time.Duration) <-chan Result {
	done := make(chan Result, 1)
	began, a := time.Now(), w.attempt
	w.making.Go(func() {
		err := a.Make(ctx, timeout)
		result := Result{Took: time.Since(began), Client: a.Client()}
		switch {
		case err == nil:
		case errors.Is(err, syscall.ECONNREFUSED):
			result.Refused = true
		case errors.Is(err, probe.ErrNoAnswer):
			result.Silent = true
		default:
			result.Error = err.Error()
		}
		done <- result
	})
	return done
}

// turn is how long one source of news is waited for.
const turn = 20 * time.Millisecond

// next tells what has happened.
func (w *watch) next() error {
	e, err := w.session.Next(time.Now().Add(turn))
	switch {
	case err == nil:
		w.event(e)
	case errors.Is(err, nftrace.ErrLost):
		w.tell(Line{Note: err.Error()})
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	for w.drops != nil {
		d, err := w.drops.Next(time.Now())
		switch {
		case err == nil:
			w.tell(Line{Drop: &d})
			continue
		case errors.Is(err, drops.ErrLost):
			w.tell(Line{Note: err.Error()})
			continue
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		break
	}
	return nil
}

func (w *watch) event(e nftrace.Event) {
	named := Event{Event: e, InName: w.interfaces[e.In], OutName: w.interfaces[e.Out]}
	if e.Kind == nftrace.Rule || e.Legacy != nil && e.Kind == nftrace.Policy {
		var err error
		if named.Text, err = w.chains.Rule(e); err != nil {
			named.Problem = err.Error()
		}
	}
	if base, ok := w.chains.Base(e); ok {
		named.Base = &base
	}
	w.tell(Line{Event: &named})
}

// close ends the trace.
func (w *watch) close() (err error) {
	w.making.Wait() // which ends with the trace's context
	if w.session != nil {
		err = w.session.Close()
	}
	if w.chains != nil {
		err = errors.Join(err, w.chains.Close())
	}
	if w.drops != nil {
		err = errors.Join(err, w.drops.Close())
	}
	if w.attempt != nil {
		err = errors.Join(err, w.attempt.Close())
	}
	return err
}
