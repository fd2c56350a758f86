//go:build !race

package l2

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/internal/kernel"
)

// nodeVariable has this test program be a node: an announcer of its own, which
// can be killed.
const (
	nodeVariable  = "FAIRWAY_TEST_L2_NODE"
	aloneVariable = "FAIRWAY_TEST_L2_ALONE" // how long its kernel answers alone
	// drainedVariable has it begin as a node that may announce nothing.
	drainedVariable = "FAIRWAY_TEST_L2_DRAINED"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(nodeVariable); name != "" {
		os.Exit(beNode(name))
	}
	os.Exit(m.Run())
}

// What a node is told by signals.
const (
	handsOver = syscall.SIGTERM
	restarts  = syscall.SIGHUP
	resigns   = syscall.SIGUSR1 // may announce nothing any more
	returns   = syscall.SIGALRM // may announce again
	isEmpty   = syscall.SIGUSR2 // has no connections left
	// forgetsKey has it know the next key only.
	forgetsKey = syscall.SIGTTIN
	// expels has it know that node a is out.
	expels = syscall.SIGTTOU
)

// nextKey is what nodes sign with that were told so.
const nextKey = "the next key"

func beNode(name string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, handsOver, restarts)
	follows := false
	go func() {
		follows = <-signals == restarts
		stop()
	}()
	c := cluster(name)
	rotate := make(chan os.Signal, 1)
	signal.Notify(rotate, forgetsKey, expels)
	go func() {
		for s := range rotate {
			if s == expels {
				c.Keys.SetOut([]string{"a"})
				continue
			}
			c.Keys.Set([]byte(nextKey))
		}
	}()
	a := New(c, func() {}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if alone, err := time.ParseDuration(os.Getenv(aloneVariable)); err == nil {
		a.alone = alone
	}
	a.KeepConnections(drainedBySignals(a), steering.NewInterfaces())
	a.OwnAddresses(true)
	wanted := map[netip.Addr]Placement{vip: {}, vip6: {}}
	if os.Getenv(drainedVariable) != "" {
		wanted = map[netip.Addr]Placement{}
	}
	a.Set(wanted, served)
	if err := a.Run(ctx, func() bool { return follows }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// served are the addresses of all nodes.
var served = map[netip.Addr]bool{vip: false, vip6: false}

// drainedBySignals has an announcer told by signals that it may announce nothing any more, or
// again, and that it has no connections left. Otherwise it has those that its host has.
func drainedBySignals(a *Announcer) steering.Connections {
	var empty atomic.Bool
	told := make(chan os.Signal, 2)
	signal.Notify(told, resigns, returns, isEmpty)
	go func() {
		for s := range told {
			switch s {
			case isEmpty:
				empty.Store(true)
			case returns:
				a.Set(map[netip.Addr]Placement{vip: {}, vip6: {}}, served)
			default:
				a.Set(map[netip.Addr]Placement{}, served)
			}
		}
	}()
	return func(addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
		if empty.Load() {
			return nil, nil
		}
		return establishedTo(addresses)
	}
}

func establishedTo(addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
	const established = 1 // TCP_ESTABLISHED
	found := map[netip.Addr][]kernel.Connection{}
	for _, family := range []uint8{syscall.AF_INET, syscall.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil {
			return nil, err
		}
		for _, s := range sockets {
			to, _ := netip.AddrFromSlice(s.ID.Source)
			from, _ := netip.AddrFromSlice(s.ID.Destination)
			if to = to.Unmap(); s.State == established && addresses[to] {
				client := netip.AddrPortFrom(from.Unmap(), s.ID.DestinationPort)
				found[to] = append(found[to], kernel.Connection{Client: client, Port: s.ID.SourcePort, Proto: syscall.IPPROTO_TCP})
			}
		}
	}
	return found, nil
}
