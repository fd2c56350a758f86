package trace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/internal/drops"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/internal/nftrace"
)

// Run follows packets in the network namespace of this process until ctx is done.
func Run(ctx context.Context, r Request, tell func(Line)) (err error) {
	if r.For == 0 {
		r.For = Longest
	}
	w := &watch{tell: tell}
	defer func() { err = errors.Join(err, w.close()) }()
	ctx, stop := context.WithTimeout(ctx, r.For)
	defer stop()
	if err := w.open(r); err != nil {
		return err
	}
	var made <-chan NodeResult
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
			return nil, fmt.Errorf("the network namespace of %s isn't on this machine, or can't be entered: an agent in a pod sees no other pods. "+
				"Leave out --send and connect in the pod (not in ebpf mode), or run fairway trace as root on the node", s.From)
		}
		defer func() { err = errors.Join(err, from.Close()) }()
	}
	return probe.NewAttemptAt(from, s.Port, s.Proto, s.To)
}

// make makes the connection, and says what became of it.
func (w *watch) make(ctx context.Context, timeout time.Duration) <-chan NodeResult {
	done := make(chan NodeResult, 1)
	began, a := time.Now(), w.attempt
	w.making.Go(func() {
		err := a.Make(ctx, timeout)
		result := NodeResult{Took: time.Since(began), Client: a.Client()}
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
