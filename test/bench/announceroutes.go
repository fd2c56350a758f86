package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/bgp"
	"github.com/fairway-net/fairway/lab"
)

// measureRoutes has a speaker of its own, on the node that announces nothing else,
// announce many addresses and withdraw them. It ends with the router's kernel.
func measureRoutes(ctx context.Context, l *announceLab, e event) (text string, err error) {
	executable, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the own executable: %w", err)
	}
	router := "172.30.99.1"
	if l.options.IPv6 {
		router = "fd00:172:30::2:1"
	}
	cmd := exec.CommandContext(ctx, executable, "speaker", router, fmt.Sprint(l.options.Addresses))
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := l.hosts[endpointsNode].Start(cmd); err != nil {
		return "", fmt.Errorf("start the speaker: %w", err)
	}
	defer func() { err = errors.Join(err, orders.Close(), cmd.Wait()) }()
	m := &routesMeter{l: l, orders: orders, said: bufio.NewScanner(said)}
	if m.routes, err = l.hosts["router"].Netlink(unix.NETLINK_ROUTE); err != nil {
		return "", err
	}
	defer m.routes.Close()
	before, err := m.hears() // that the session is there, and the memory in use
	if err != nil {
		return "", err
	}
	var up, down moves
	for range min(l.options.Repetitions, e.most) {
		if err := errors.Join(m.order(ctx, "announce", l.options.Addresses, &up), m.order(ctx, "withdraw", 0, &down)); err != nil {
			return "", err
		}
	}
	met := verdict(median(up.inKernel) <= time.Second && median(down.inKernel) <= 100*time.Millisecond)
	return fmt.Sprintf("%s%d announced: %s; withdrawn: %s (%d times); memory of the speaker: %s MB with a session, %s MB with all addresses",
		met, l.options.Addresses, up, down, len(up.told), before, up.memory), nil
}

// moves are how long it took to tell the router, until its kernel had it, and the
// memory of the speaker then.
type moves struct {
	told, inKernel []time.Duration
	memory         string
}

func (m moves) String() string {
	return fmt.Sprintf("the router is told after %s, its kernel has it after %s", milliseconds(median(m.told)), milliseconds(median(m.inKernel)))
}

func median(list []time.Duration) time.Duration {
	return percentile(slices.Sorted(slices.Values(list)), 50)
}

// routesMeter gives orders to the speaker and looks at the router's kernel.
type routesMeter struct {
	l      *announceLab
	orders io.Writer
	said   *bufio.Scanner
	routes *netlink.Handle
}

func (m *routesMeter) hears() (string, error) {
	if !m.said.Scan() {
		return "", errors.Join(errors.New("the speaker ended"), m.said.Err())
	}
	return m.said.Text(), nil
}

// order has the speaker do something, and waits until the router's kernel has as
// many of its routes.
func (m *routesMeter) order(ctx context.Context, what string, want int, into *moves) error {
	began := time.Now()
	if _, err := fmt.Fprintln(m.orders, what); err != nil {
		return err
	}
	var took time.Duration
	err := poll(ctx, time.Minute, time.Millisecond, func() error {
		count, err := m.count()
		if took = time.Since(began); err == nil && count != want {
			err = fmt.Errorf("the router's kernel has %d routes, want %d", count, want)
		}
		return err
	})
	if err != nil {
		return err
	}
	answer, err := m.hears()
	if err != nil {
		return err
	}
	var told int64
	if _, err := fmt.Sscan(answer, &into.memory, &told); err != nil {
		return fmt.Errorf("read the speaker's answer %q: %w", answer, err)
	}
	into.told, into.inKernel = append(into.told, time.Duration(told)*time.Microsecond), append(into.inKernel, took)
	return nil
}

// count counts the speaker's routes in the router's kernel.
func (m *routesMeter) count() (int, error) {
	family, all := netlink.FAMILY_V4, manyPool
	if m.l.options.IPv6 {
		family, all = netlink.FAMILY_V6, manyPool6
	}
	list, err := m.routes.RouteListFiltered(family, &netlink.Route{}, 0)
	count := 0
	for _, r := range list {
		if r.Dst == nil {
			continue
		}
		if a, ok := netip.AddrFromSlice(r.Dst.IP); ok && all.Contains(a.Unmap()) {
			count++
		}
	}
	return count, err
}

// The addresses that the speaker announces.
var manyPool, manyPool6 = netip.MustParsePrefix("10.112.0.0/12"), netip.MustParsePrefix("fd00:112::/64")

// AnnounceSpeaker is the speaker, in a process of its own: it holds a session with a
// router, and announces and withdraws addresses as it is told by lines of in.
func AnnounceSpeaker(ctx context.Context, router netip.Addr, count int, in io.Reader, out io.Writer) error {
	before := memoryInUse()
	s := bgp.New(func() {}, slog.New(slog.DiscardHandler))
	defer s.Close(ctx, false)
	s.Peers([]announce.Peer{{
		Name: "router", LocalASN: lab.NodesASN, ASN: lab.RouterASN, Address: router, Port: 179,
		HoldTime: 90 * time.Second, Connect: time.Second, RouterID: netip.MustParseAddr("192.0.2.1"),
	}})
	err := poll(ctx, time.Minute, 10*time.Millisecond, func() error {
		if st := s.Status()[0]; st.State != bgp.Established {
			return fmt.Errorf("no session with %s: %s %s", router, st.State, st.LastError)
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := map[netip.Prefix]announce.Route{}
	first := manyPool.Addr()
	if router.Is6() {
		first = manyPool6.Addr()
	}
	for a := first; len(all) < count; a = a.Next() {
		all[netip.PrefixFrom(a, a.BitLen())] = announce.Route{}
	}
	fmt.Fprintln(out, (memoryInUse()-before)>>20)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		wanted := map[string]map[netip.Prefix]announce.Route{}
		if strings.TrimSpace(lines.Text()) == "announce" {
			wanted["router"] = all
		}
		began := time.Now()
		s.Routes(wanted)
		for len(s.Status()[0].Prefixes) != len(wanted["router"]) && ctx.Err() == nil {
			pause(ctx, time.Millisecond)
		}
		took := time.Since(began)
		pause(ctx, time.Second) // the router is looked at meanwhile
		fmt.Fprintln(out, (memoryInUse()-before)>>20, int64(took/time.Microsecond))
	}
	return nil
}

// memoryInUse is what the process needs, without what it could give back.
func memoryInUse() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
