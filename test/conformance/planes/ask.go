package planes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/model"
)

// waitTimeout is how long an answer may take on a busy machine. Only failing cases
// wait for its end.
var waitTimeout = 30 * time.Second

// silence is how long nothing must come for it to count as silence. A plane
// that refuses answers in far less; on a machine so slow that it doesn't, the
// case passes wrongly rather than failing wrongly.
const silence = 300 * time.Millisecond

// Answer is what became of one connection or datagram.
type Answer struct {
	Outcome Outcome
	Backend string     // who answered: "a:8080"
	Client  netip.Addr // as the backend saw it
	Local   netip.Addr // as the client itself sees it
	Err     error      // of outcomes other than Forwarded
}

// String says it for people.
func (a Answer) String() string {
	if a.Outcome == Forwarded {
		return fmt.Sprintf("answered by %s, which saw %s of %s", a.Backend, a.Client, a.Local)
	}
	return fmt.Sprintf("%s (%v)", a.Outcome, a.Err)
}

// unreachable is an outcome that no case expects: an ICMP error other than
// port-unreachable.
const unreachable Outcome = "unreachable"

// ask makes one connection and asks who is there.
func (s *Topology) ask(p Probe, wait time.Duration) Answer {
	conn, err := s.connect(p, wait)
	if err != nil {
		return Answer{Outcome: outcomeOf(err), Err: err}
	}
	answer := question(conn, p.Proto, wait)
	if err := conn.Close(); err != nil && answer.Err == nil {
		answer.Err = err
	}
	return answer
}

// question asks over an open connection who is there.
func question(conn net.Conn, proto model.Protocol, wait time.Duration) Answer {
	deadline := time.Now().Add(wait)
	for again := 0; ; again++ {
		text, err := exchange(conn, proto, deadline)
		if err == nil {
			forgetAnswers(conn, again)
			return parseAnswer(text, conn)
		}
		// A datagram may be lost while neighbours are looked up.
		if proto != model.UDP || !errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline) {
			return Answer{Outcome: outcomeOf(err), Err: err}
		}
	}
}

// forgetAnswers reads the answers to questions that were asked again too soon,
// lest they be taken for those to later ones. Those that don't come were lost.
func forgetAnswers(conn net.Conn, n int) {
	for range n {
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return // it is the next question's to find out
		}
		if _, err := conn.Read(make([]byte, 512)); err != nil {
			return
		}
	}
}

func exchange(conn net.Conn, proto model.Protocol, deadline time.Time) (string, error) {
	if proto == model.UDP {
		if soon := time.Now().Add(time.Second); soon.Before(deadline) {
			deadline = soon
		}
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	_, err := io.WriteString(conn, "who?\n")
	if proto == model.UDP && errors.Is(err, syscall.EPERM) {
		// Dropped on the way out of this very host; an ICMP error, if there is
		// one, comes to who listens.
		err = nil
	}
	if err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

// parseAnswer reads the echo's "NAME CLIENT-ADDRESS".
func parseAnswer(text string, conn net.Conn) Answer {
	name, client, _ := strings.Cut(strings.TrimSpace(text), " ")
	seen, err := netip.ParseAddrPort(client)
	if err != nil {
		return Answer{Outcome: unreachable, Err: fmt.Errorf("strange answer %q: %w", text, err)}
	}
	own, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return Answer{Outcome: unreachable, Err: fmt.Errorf("own address: %w", err)}
	}
	return Answer{Outcome: Forwarded, Backend: name, Client: seen.Addr().Unmap(), Local: own.Addr().Unmap()}
}

// outcomeOf tells from a socket's error what happened to the packets.
func outcomeOf(err error) Outcome {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return Reset
	case errors.As(err, &timeout) && timeout.Timeout():
		return Silent
	}
	return unreachable
}
