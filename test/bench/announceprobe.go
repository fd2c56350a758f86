package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

const (
	probeEvery = time.Millisecond
	// probeGrace is how old a datagram must be to count as lost.
	probeGrace = 300 * time.Millisecond
)

// probe is a flow of datagrams, a thousand a second, each of which is to be answered.
type probe struct {
	to   netip.AddrPort
	conn net.Conn
	stop chan struct{}
	work sync.WaitGroup

	mu       sync.Mutex
	sent     []time.Time
	answered []bool
	first    time.Time // when the first answer came
}

// startProbe begins a flow from a host.
func startProbe(ns *netns.NS, to netip.AddrPort) (*probe, error) {
	conn, err := dialIn(ns, time.Second, "udp", to.String())
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", to, err)
	}
	p := &probe{to: to, conn: conn, stop: make(chan struct{})}
	if err := p.widen(); err != nil {
		return nil, errors.Join(fmt.Errorf("probe %s: %w", to, err), conn.Close())
	}
	p.work.Go(p.send)
	p.work.Go(p.receive)
	return p, nil
}

// widen has the socket hold answers of seconds: what the kernel drops here would
// count as lost on the way.
func (p *probe) widen() error {
	raw, err := p.conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	const bytes = 8 << 20
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes) })
	return errors.Join(err, failed)
}

func (p *probe) from() netip.AddrPort { return p.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// send keeps to its times on the whole: it is late at times, and catches up.
func (p *probe) send() {
	for next := time.Now(); ; next = next.Add(probeEvery) {
		select {
		case <-p.stop:
			return
		case <-time.After(time.Until(next)):
		}
		p.mu.Lock()
		number := len(p.sent)
		p.sent, p.answered = append(p.sent, time.Now()), append(p.answered, false)
		p.mu.Unlock()
		// A refusal of an earlier one, or of the kernel, is a datagram lost.
		_, _ = fmt.Fprintf(p.conn, "echo %d", number)
	}
}

func (p *probe) receive() {
	buffer := make([]byte, 64)
	for {
		n, err := p.conn.Read(buffer)
		if err != nil {
			select {
			case <-p.stop:
				return
			default:
				time.Sleep(probeEvery)
				continue // "connection refused" is an answer of a kind
			}
		}
		number, err := strconv.Atoi(strings.TrimSpace(string(buffer[:n])))
		p.mu.Lock()
		if err == nil && number < len(p.answered) {
			p.answered[number] = true
			if p.first.IsZero() {
				p.first = time.Now()
			}
		}
		p.mu.Unlock()
	}
}

// answeredSince reports whether datagrams that were sent after a time are answered.
func (p *probe) answeredSince(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.sent) - 1; i >= 0 && p.sent[i].After(t); i-- {
		if p.answered[i] {
			return true
		}
	}
	return false
}

// firstAnswer is when the first answer came, if one has.
func (p *probe) firstAnswer() (at time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first, !p.first.IsZero()
}

// close ends the flow.
func (p *probe) close() error {
	close(p.stop)
	err := p.conn.Close()
	p.work.Wait()
	return err
}

// gap is the longest time for which no datagram was answered, by when they were
// sent, and how many were lost in all. Where none was lost it is 0.
func (p *probe) gap() (longest time.Duration, lost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := -1
	for i, at := range p.sent {
		switch {
		case p.answered[i]:
			if before >= 0 && i > before+1 {
				longest = max(longest, at.Sub(p.sent[before])-probeEvery)
			}
			before = i
		case time.Since(at) > probeGrace:
			lost++
		}
	}
	return longest, lost
}
