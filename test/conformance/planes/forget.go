package planes

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/model"
)

// pauses is how many of them a plane has to forget a client, since a fresh
// choice may be the remembered one by chance.
const pauses = 14

// forgets does the step of this name: as long as a client comes within the
// timeout it reaches the same backend, and after a pause another one, since
// nothing is remembered any more.
func (r *Run) forgets(s Step) error {
	p, err := parseProbe(s.Args[1:])
	if err != nil {
		return err
	}
	timeout, pause, err := parseTimeout(s.Args[0])
	if err != nil {
		return err
	}
	v, err := r.decide(p, s.Expect)
	if err != nil {
		return err
	}
	if v.Action != model.Forward || v.Pool.Affinity != timeout {
		return fmt.Errorf("the case says that clients are remembered for %s, but the table says otherwise: %s", timeout, v.Reason)
	}
	if r.topo == nil || r.cannot(p, s) {
		return nil
	}
	w := r.wanted(p, s, v)
	last, err := r.topo.remembered(p, w, timeout)
	if err != nil {
		return err
	}
	for range pauses {
		time.Sleep(pause)
		is, err := r.topo.visit(p, w)
		if err != nil {
			return err
		}
		if is != last {
			return nil
		}
	}
	return fmt.Errorf("the client still reaches %s after %d pauses of %s", last, pauses, pause)
}

// parseTimeout reads "3", a timeout in seconds, or "3+70", the same and how
// much longer the plane may remember. The pause is a second longer than both.
func parseTimeout(text string) (timeout, pause time.Duration, err error) {
	first, second, two := strings.Cut(text, "+")
	seconds, err := strconv.ParseUint(first, 10, 16)
	var more uint64
	if err == nil && two {
		more, err = strconv.ParseUint(second, 10, 16)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("timeout %q: must be seconds, or SECONDS+MORE", text)
	}
	timeout = time.Duration(seconds) * time.Second
	return timeout, timeout + time.Duration(more+1)*time.Second, nil
}

// remembered makes connections that must reach the same backend, and tells
// which. On a machine so slow that two of them are further apart than the
// timeout, nothing follows from them.
func (s *Topology) remembered(p Probe, w wanted, timeout time.Duration) (string, error) {
	var last string
	var began time.Time
	for range 10 {
		before, now := began, time.Now()
		is, err := s.visit(p, w)
		if err != nil {
			return "", err
		}
		if last != "" && is != last && time.Since(before) < timeout-time.Second {
			return "", fmt.Errorf("reached %s and then %s within the timeout of %s", last, is, timeout)
		}
		last, began = is, now
	}
	return last, nil
}

// visit makes one connection, tells which backend answers, and resets it, after
// which nobody has a reason to remember it.
func (s *Topology) visit(p Probe, w wanted) (string, error) {
	conn, err := s.connect(p, waitTimeout)
	if err != nil {
		return "", fmt.Errorf("expected a connection: %w", err)
	}
	answer := question(conn, p.Proto, waitTimeout)
	if tcp, ok := conn.(*net.TCPConn); ok && p.Proto == model.TCP {
		err = tcp.SetLinger(0)
	}
	if closeErr := conn.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("end connection: %w", err)
	}
	return answer.Backend, w.judge(answer)
}
