package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/internal/netns"
)

// place is where connections are made from: in the node's cgroup, if it is of a
// node, so that eBPF programs see them.
type place struct {
	ns      *netns.NS
	sockets *cgroupsock.Maker
}

// dial connects from a place.
func (p *place) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if p.sockets != nil {
		d.Control = p.sockets.Control(p.ns.Name())
	}
	var conn net.Conn
	err := p.ns.Do(func() (err error) {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// ask asks who answers at an address, and which client it sees.
func (p *place) ask(network, address string) (pod string, client netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout/2)
	defer cancel()
	conn, err := p.dial(ctx, network, address)
	if err != nil {
		return "", client, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return question(conn, waitTimeout/2)
}

func question(conn net.Conn, wait time.Duration) (pod string, client netip.Addr, err error) {
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", client, err
	}
	if _, err := io.WriteString(conn, "who?\n"); err != nil {
		return "", client, err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", client, err
	}
	pod, seen, _ := strings.Cut(strings.TrimSpace(line), " ")
	at, err := netip.ParseAddrPort(seen)
	return pod, at.Addr().Unmap(), err
}

// meets asks until all of the pods have answered, and nobody else.
func (p *place) meets(network, address string, pods []string) error {
	seen := map[string]bool{}
	for range 20 * len(pods) {
		pod, _, err := p.ask(network, address)
		if err != nil {
			return err
		}
		if !slices.Contains(pods, pod) {
			return fmt.Errorf("answered by %q, which is none of %v", pod, pods)
		}
		if seen[pod] = true; len(seen) == len(pods) {
			return nil
		}
	}
	return fmt.Errorf("of the pods %v, only %v answered", pods, seen)
}

// sticks asks for a while, and meets the same pod.
func (p *place) sticks(address string) error {
	first, _, err := p.ask("tcp", address)
	for i := 0; i < 10 && err == nil; i++ {
		var pod string
		if pod, _, err = p.ask("tcp", address); err == nil && pod != first {
			return fmt.Errorf("answered by %s, and then by %s", first, pod)
		}
	}
	return err
}

// busy is connections made without a pause, and some that last.
type busy struct {
	on     *cluster
	stop   chan struct{}
	ended  sync.WaitGroup
	mu     sync.Mutex
	asked  int
	failed []string
}

// load asks the Service web from everywhere, until it is checked; with flows,
// also over connections that are open from the beginning.
func (c *cluster) load(t *testing.T, flows bool) *busy {
	t.Helper()
	b := &busy{on: c, stop: make(chan struct{})}
	for name, p := range c.places {
		for _, where := range []string{"4", "6", "node port"} {
			address := c.at("web", where, 0)
			b.ended.Go(func() {
				b.run(func() error {
					_, _, err := p.ask("tcp", address)
					return wrap(err, "new connection from %s to %s", name, address)
				})
			})
			if !flows {
				continue
			}
			b.lasts(t, p, "tcp", address, waitTimeout/2, "established connection from "+name)
		}
	}
	return b
}

// lasts keeps asking the pod that has answered first, within wait, over one connection
// or from one client's port; what says which that is.
func (b *busy) lasts(t *testing.T, p *place, network, address string, wait time.Duration, what string) {
	t.Helper()
	conn, err := p.dial(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := question(conn, wait)
	if err != nil {
		t.Fatal(err)
	}
	b.ended.Go(func() {
		b.run(func() error {
			pod, _, err := question(conn, waitTimeout/2)
			if err == nil && pod != first {
				err = fmt.Errorf("answered by %s instead of %s", pod, first)
			}
			return wrap(err, "%s to %s", what, address)
		})
		_ = conn.Close() // its use was checked
	})
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// run asks until it is told to stop, or one question fails.
func (b *busy) run(ask func() error) {
	for {
		err := ask()
		b.mu.Lock()
		b.asked++
		if err != nil {
			b.failed = append(b.failed, time.Now().Format("15:04:05.000 ")+err.Error())
		}
		b.mu.Unlock()
		select {
		case <-b.stop:
			return
		case <-time.After(5 * time.Millisecond): // or ports run out
		}
		if err != nil && strings.HasPrefix(err.Error(), "established") {
			return
		}
	}
}

// check ends the load; everything must have been answered, unless something may
// be lost for a declared reason.
func (b *busy) check(t *testing.T, during, lost string) {
	t.Helper()
	close(b.stop)
	b.ended.Wait()
	for _, f := range b.failed[:min(len(b.failed), 10)] {
		if lost != "" {
			t.Logf("DECLARED LOSS, %s: %s: %s", lost, during, f)
		} else {
			t.Errorf("%s: %s", during, f)
		}
	}
	t.Logf("%s: %d questions, %d without an answer", during, b.asked, len(b.failed))
	if lost != "" {
		b.on.forgetAttempts(t)
	}
}

// forgetAttempts has the nodes forget the connections to Services that were tried
// while no rules were there: for two minutes conntrack would lead a new one from the
// same port there again, untranslated, and kube-proxy's filters would refuse it.
func (c *cluster) forgetAttempts(t *testing.T) {
	t.Helper()
	for _, node := range c.nodes {
		for _, family := range []string{"ipv4", "ipv6"} {
			_, stderr, code := fairway("lab", "exec", "--name", c.lab, node, "--",
				"conntrack", "-D", "-f", family, "-p", "tcp", "--state", "SYN_SENT")
			if code != 0 && !strings.Contains(stderr, "0 flow entries") {
				t.Errorf("forget attempts on %s: %s", node, stderr)
			}
		}
	}
}
