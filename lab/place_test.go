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
	ctx, cancel := context.WithTimeout(context.Background(), patience/2)
	defer cancel()
	conn, err := p.dial(ctx, network, address)
	if err != nil {
		return "", client, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return question(conn, patience/2)
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
