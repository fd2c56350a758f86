package planes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// flow is a connection, or a UDP socket that keeps its port, held over several
// steps.
type flow struct {
	probe Probe
	conn  net.Conn
	last  Answer
}

// probe compares what is expected with the specification, and then with what
// packets meet.
func (r *Run) probe(s Step) error {
	p, err := parseProbe(s.Args)
	if err != nil {
		return err
	}
	v, err := r.decide(p, s.Expect)
	if err != nil || r.topo == nil {
		return err
	}
	if r.cannot(p, s) {
		return nil
	}
	return r.topo.check(p, r.wanted(p, s, v))
}

func (r *Run) decide(p Probe, e *Expectation) (model.Verdict, error) {
	v := r.table.Decide(p.From.packet(p.Proto, p.To))
	if err := e.checkVerdict(v); err != nil || r.topo != nil {
		return v, err
	}
	return v, r.cluster.checkExplained(p, v)
}

// cannot reports whether the step's protocol is beyond the plane.
func (r *Run) cannot(p Probe, s Step) bool {
	if p.Proto != model.SCTP {
		return false
	}
	if lack := r.lack(kernel.SCTPProtocol, ""); lack != nil {
		r.except(s, lack, "left out")
		return true
	}
	return false
}

// wanted is what packets must meet, weakened by what the plane lacks.
func (r *Run) wanted(p Probe, s Step, v model.Verdict) wanted {
	w := wantedOf(r.topo, p, s.Expect, v)
	made := w.weaken(v, r.lacks)
	for _, weaker := range made {
		r.except(s, weaker.lack, weaker.how)
	}
	if r.foreign {
		w.excuse(v)
	} else {
		w.holdSaid(r.said(p), made)
	}
	return w
}

// flowStep does the steps flow, send and close.
func (r *Run) flowStep(s Step) error {
	name := s.Args[0]
	f := r.flows[name]
	if s.Verb == "flow" {
		if f != nil {
			return fmt.Errorf("there is a flow %q already", name)
		}
		return r.open(name, s)
	}
	if f == nil {
		return fmt.Errorf("no flow %q", name)
	}
	switch s.Verb {
	case "send":
		return r.send(f, s)
	case "invalid":
		return r.invalid(f)
	case "bypasses":
		return r.bypasses(f)
	case "large":
		return f.large(s.Args[1])
	}
	delete(r.flows, name)
	if f.conn == nil {
		return nil
	}
	return f.conn.Close()
}

// open begins a flow and keeps it. A UDP flow may begin unanswered; it keeps
// its port nevertheless.
func (r *Run) open(name string, s Step) error {
	p, err := parseProbe(s.Args[1:])
	if err != nil {
		return err
	}
	v, err := r.decide(p, s.Expect)
	if err != nil {
		return err
	}
	f := &flow{probe: p}
	r.flows[name] = f
	if r.topo == nil || r.cannot(p, s) {
		return nil
	}
	if f.conn, err = r.topo.connect(p, waitTimeout); err != nil {
		return fmt.Errorf("expected a connection: %w", err)
	}
	return f.ask(r.wanted(p, s, v))
}

// send asks over a flow who is there now.
func (r *Run) send(f *flow, s Step) error {
	w := wanted{outcome: s.Expect.Outcome, sources: r.topo.sources()}
	switch s.Expect.Outcome {
	case Same:
		w.outcome, w.backends, w.lenient = Forwarded, map[string]bool{f.last.Backend: f.last.Client != f.last.Local}, true
	case Reset:
	default:
		v, err := r.decide(f.probe, s.Expect)
		if err != nil {
			return err
		}
		if r.topo != nil {
			w = r.wanted(f.probe, s, v)
		}
	}
	if f.conn == nil {
		return nil
	}
	was := f.last
	if err := f.ask(w); err != nil {
		return err
	}
	if s.Expect.Outcome == Same && f.last.Client != was.Client {
		return fmt.Errorf("%s, expected it to see %s as before", f.last, was.Client)
	}
	return nil
}

func (f *flow) ask(w wanted) error {
	wait := waitTimeout
	if w.outcome == Silent {
		wait = silence
	}
	answer := question(f.conn, f.probe.Proto, wait)
	if err := w.judge(answer); err != nil {
		return err
	}
	f.last = answer
	return nil
}

// large says a line of so many bytes, and reads the answer.
func (f *flow) large(size string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return fmt.Errorf("%q: must be a number of bytes", size)
	}
	if f.conn == nil {
		return nil
	}
	if err := f.conn.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(f.conn, strings.Repeat("x", n-1)+"\n"); err != nil {
		return err
	}
	text, err := bufio.NewReader(f.conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("a line of %d bytes: %w", n, err)
	}
	answer := parseAnswer(text, f.conn)
	if answer.Backend != f.last.Backend || answer.Client != f.last.Client {
		return fmt.Errorf("a line of %d bytes: %s, expected as before: %s", n, answer, f.last)
	}
	return nil
}

// Finish ends flows, removes the plane's objects and ends its process.
func (r *Run) Finish() error {
	errs := []error{r.closeFlows()}
	for name := range r.loads {
		if err := r.unload(name); err != nil {
			errs = append(errs, err)
		}
	}
	if r.moved {
		errs = append(errs, r.via(NodeName))
	}
	if r.process == nil && r.topo != nil {
		errs = append(errs, r.start())
	}
	if r.process != nil {
		errs = append(errs, r.process.Remove(), r.removePeer(), r.kill())
	}
	if r.other != "" {
		errs = append(errs, r.awaitRetired())
	}
	return errors.Join(errs...)
}

func (r *Run) closeFlows() error {
	var errs []error
	for name, f := range r.flows {
		if f.conn == nil {
			continue
		}
		if err := f.conn.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close flow %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Diagnosis is what helps to understand why a case failed: the plane's objects
// and what its process wrote.
func (r *Run) Diagnosis() string {
	if r.process == nil {
		return "the plane's process is not running"
	}
	objects, err := r.process.Dump()
	if err != nil {
		objects = err.Error()
	}
	return fmt.Sprintf("the plane's objects:\n%s\nits process said: %s", objects, r.process.Log())
}
