//go:build !race

package l2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
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
)

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
	a := New(name, []byte("key"), func() {}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if alone, err := time.ParseDuration(os.Getenv(aloneVariable)); err == nil {
		a.alone = alone
	}
	a.KeepConnections(drainedBySignals(a))
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
func drainedBySignals(a *Announcer) Connections {
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

// lan is a switch with nodes and a client behind it.
type lan struct {
	*testing.T
	hub     *netns.NS
	hosts   map[string]*netns.NS
	macs    map[string]string // to names
	nodes   map[string]*exec.Cmd
	alone   string // for how long kernels answer without an agent; "" is as ever
	drained string // nodes that are started may announce nothing; "" if they may
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs network namespaces")
	}
	t.Parallel()
	l := &lan{T: t, hosts: map[string]*netns.NS{}, macs: map[string]string{}, nodes: map[string]*exec.Cmd{}}
	l.hub = l.namespace()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "hub"}}
	l.must(l.hub.Do(func() error {
		return errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge))
	}))
	for i, name := range []string{"client", "a", "b"} {
		l.connect(name, i+1, bridge)
	}
	return l
}

func (l *lan) namespace() *netns.NS {
	l.Helper()
	ns, err := netns.Anonymous()
	l.must(err)
	l.Cleanup(func() { l.must(ns.Close()) })
	return ns
}

func (l *lan) connect(name string, number int, bridge netlink.Link) {
	l.Helper()
	host := l.namespace()
	l.hosts[name] = host
	l.must(l.hub.Do(func() error {
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "to-" + name, MasterIndex: bridge.Attrs().Index},
			PeerName:  "eth0", PeerNamespace: netlink.NsFd(host.Fd()),
		}
		return errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth))
	}))
	l.must(host.Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		l.macs[eth.Attrs().HardwareAddr.String()] = name
		four := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, byte(200+number)), Mask: net.CIDRMask(24, 32)}}
		six := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(fmt.Sprintf("2001:db8::f%d", number)), Mask: net.CIDRMask(64, 128)}, Flags: syscall.IFA_F_NODAD}
		return errors.Join(netlink.LinkSetUp(eth), netlink.AddrAdd(eth, four), netlink.AddrAdd(eth, six))
	}))
}

func (l *lan) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// start runs an announcer on a node.
func (l *lan) start(name string) {
	l.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeVariable+"="+name, aloneVariable+"="+l.alone, drainedVariable+"="+l.drained)
	cmd.Stderr = l.Output()
	l.must(l.hosts[name].Start(cmd))
	l.nodes[name] = cmd
	l.Cleanup(func() { l.end(name, syscall.SIGKILL) })
}

func (l *lan) end(name string, s os.Signal) {
	l.Helper()
	cmd := l.nodes[name]
	if cmd == nil {
		return
	}
	delete(l.nodes, name)
	l.must(cmd.Process.Signal(s))
	var status *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &status) {
		l.Error(err)
	}
}

var macPattern = regexp.MustCompile(`(?i)[0-9a-f]{2}(:[0-9a-f]{2}){5}`)

// ask sends a request and lists the nodes whose answers came.
func (l *lan) ask(command ...string) []string {
	l.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, io.Discard
	l.must(l.hosts["client"].Start(cmd))
	_ = cmd.Wait() // no answer is an answer
	var names []string
	for _, mac := range macPattern.FindAllString(out.String(), -1) {
		names = append(names, l.macs[strings.ToLower(mac)])
	}
	return names
}

// askARP asks the link who has the IPv4 address, and lists all that answer within a moment.
// arping ends with the first answer.
func (l *lan) askARP() (names []string) {
	l.Helper()
	var conn *packet.Conn
	var eth *net.Interface
	l.must(l.hosts["client"].Do(func() (err error) {
		if eth, err = net.InterfaceByName("eth0"); err == nil {
			conn, err = packet.Listen(eth, packet.Raw, etherARP, nil)
		}
		return err
	}))
	defer conn.Close()
	question := arpMessage{
		Operation: arpRequest, SenderMAC: eth.HardwareAddr, Sender: netip.MustParseAddr("192.0.2.201"), TargetMAC: make(net.HardwareAddr, 6), Target: vip,
	}
	_, err := conn.WriteTo(question.frame(broadcast), &packet.Addr{HardwareAddr: broadcast})
	l.must(err)
	const moment = 200 * time.Millisecond
	l.must(conn.SetReadDeadline(time.Now().Add(moment)))
	for buffer := make([]byte, 2048); ; {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return names
		}
		if m, ok := parseARP(buffer[:n]); ok && m.Operation == arpReply && m.Sender == vip && m.Target == question.Sender {
			names = append(names, l.macs[m.SenderMAC.String()])
		}
	}
}

func (l *lan) askNDP() []string {
	return l.ask("ndisc6", "-m", "-r", "1", "-w", "200", vip6.String(), "eth0")
}

// awaitOwners waits until each address is answered for by one node, and returns
// the nodes.
func (l *lan) awaitOwners() (four, six string) {
	l.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		arp, ndp := l.askARP(), l.askNDP()
		if len(arp) == 1 && len(ndp) == 1 && arp[0] != "" && ndp[0] != "" {
			return arp[0], ndp[0]
		}
		if time.Now().After(deadline) {
			l.Fatalf("%v answer ARP, %v NDP; want one each", arp, ndp)
		}
	}
}

// expectOwners fails if the addresses are not soon with the given node alone.
func (l *lan) expectOwners(name string) {
	l.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		four, six := l.awaitOwners()
		if four == name && six == name {
			return
		}
		if time.Now().After(deadline) {
			l.Fatalf("%s answers ARP, %s NDP; want %s", four, six, name)
		}
	}
}

func requireTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"ndisc6"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: run make deps", err)
		}
	}
}

// TestTakeOver: exactly one node answers, in both families, whoever loses power,
// ends, or loses its link.
func TestTakeOver(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.start("a")
	l.start("b")
	l.awaitOwners()

	l.cutPower("a")
	l.expectOwners("b")
	l.setLink("a", true) // without an agent, but for what the kernel has
	l.expectOwners("b")
	l.start("a")
	time.Sleep(5 * Interval)
	l.expectOwners("b")

	// One that ends in order hands over.
	l.end("b", handsOver)
	l.expectOwners("a")
	l.start("b")
	time.Sleep(5 * Interval)

	l.setLink("a", false)
	l.expectOwners("b")
	l.setLink("a", true)
	time.Sleep(10 * Interval)
	l.expectOwners("b")
}

// TestOneWay: where frames of the owner are lost on their way to the other node, and not the
// other way round, the later claim counts, and one node answers, also when all is well again.
func TestOneWay(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.firstAlone()
	var mac string
	for m, name := range l.macs {
		if name == "a" {
			mac = m
		}
	}
	rules := "table netdev cut { chain to-b { type filter hook egress device to-b priority 0; ether saddr " + mac + " drop; }; }"
	nft := func(input string) {
		t.Helper()
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin, cmd.Stderr = strings.NewReader(input), l.Output()
		l.must(l.hub.Start(cmd))
		l.must(cmd.Wait())
	}
	nft(rules)
	l.expectOwners("b")
	l.stays("b", "frames of a are lost", 10*Interval)
	nft("delete table netdev cut")
	l.stays("b", "all is well again", 10*Interval)
	l.expectOwners("b")
}

// cutPower has a node be silent and its agent gone.
func (l *lan) cutPower(name string) {
	l.Helper()
	l.setLink(name, false)
	l.end(name, syscall.SIGKILL)
}

func (l *lan) setLink(name string, up bool) {
	l.Helper()
	l.must(l.hub.Do(func() error {
		link, err := netlink.LinkByName("to-" + name)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	}))
}

// TestGroups: switches that look after groups (MLD snooping) are told of the owner's,
// and no longer of the former owner's.
func TestGroups(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.start("a")
	l.expectOwners("a")
	l.awaitGroup("a", true)
	l.start("b")
	time.Sleep(5 * Interval)
	l.awaitGroup("b", false)
	l.end("a", handsOver)
	l.expectOwners("b")
	l.awaitGroup("b", true)
	l.awaitGroup("a", false)
}

// awaitGroup waits until the kernel of a node is in the group of the address, which it
// tells by MLD reports, or is not.
func (l *lan) awaitGroup(node string, in bool) {
	l.Helper()
	group := fmt.Sprintf("%x", solicitedNode(vip6).As16())
	l.await(func() (bool, string) {
		var list []byte
		l.must(l.hosts[node].Do(func() (err error) {
			list, err = os.ReadFile("/proc/thread-self/net/igmp6")
			return err
		}))
		return strings.Contains(string(list), group) == in, fmt.Sprintf("%s: in group %s? want %t:\n%s", node, group, in, list)
	})
}

// TestNeighborsLearn: the client's neighbor tables follow a take-over at once,
// by what is told unasked, and the kernel's unicast probes are answered.
func TestNeighborsLearn(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.start("a")
	l.awaitOwners()
	for _, address := range []netip.Addr{vip, vip6} {
		l.touch(address)
		l.awaitNeighbor(address, "a")
	}
	l.start("b")
	time.Sleep(5 * Interval)
	l.cutPower("a")
	for _, address := range []netip.Addr{vip, vip6} {
		l.awaitNeighbor(address, "b")
	}
	// A stale entry is probed by unicast (RFC 4861, 7.3.3).
	l.must(l.hosts["client"].Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for mac, name := range l.macs {
			hardware, err := net.ParseMAC(mac)
			if err != nil {
				return err
			}
			if name == "b" {
				err = netlink.NeighSet(&netlink.Neigh{LinkIndex: eth.Attrs().Index, IP: vip6.AsSlice(), HardwareAddr: hardware, State: netlink.NUD_PROBE})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	l.awaitState(vip6, netlink.NUD_REACHABLE)
}

// touch has the client send something to an address.
func (l *lan) touch(a netip.Addr) {
	l.Helper()
	l.must(l.hosts["client"].Do(func() error {
		c, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	}))
}

func (l *lan) neighbor(a netip.Addr) (found netlink.Neigh) {
	l.Helper()
	l.must(l.hosts["client"].Do(func() error {
		list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		for _, n := range list {
			if n.IP.Equal(a.AsSlice()) {
				found = n
			}
		}
		return err
	}))
	return found
}

func (l *lan) awaitNeighbor(a netip.Addr, node string) {
	l.Helper()
	l.await(func() (bool, string) {
		mac := l.neighbor(a).HardwareAddr.String()
		return l.macs[mac] == node, fmt.Sprintf("the client has %s at %s (%s), want %s", a, l.macs[mac], mac, node)
	})
}

func (l *lan) awaitState(a netip.Addr, state int) {
	l.Helper()
	l.await(func() (bool, string) {
		got := l.neighbor(a).State
		return got == state, fmt.Sprintf("the client's entry of %s is in state %#x, want %#x", a, got, state)
	})
}

func (l *lan) await(check func() (bool, string)) {
	l.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		ok, text := check()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			l.Fatal(text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestDuplicateAddress: an address that another machine has is not announced
// until that one gives it up.
func TestDuplicateAddress(t *testing.T) {
	l := newLAN(t)
	taken := &netlink.Addr{IPNet: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(24, 32)}}
	taken6 := &netlink.Addr{IPNet: &net.IPNet{IP: vip6.AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: syscall.IFA_F_NODAD}
	l.must(l.hosts["b"].Do(func() error {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(eth, taken), netlink.AddrAdd(eth, taken6))
	}))
	ctx, cancel := context.WithCancel(t.Context())
	a := New("a", []byte("key"), func() {}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	a.Set(map[netip.Addr]Placement{vip: {}, vip6: {}}, served)
	done := make(chan error, 1)
	go func() { done <- l.hosts["a"].Do(func() error { return a.Run(ctx, func() bool { return false }) }) }()
	defer func() {
		cancel()
		l.must(<-done)
	}()
	l.await(func() (bool, string) {
		status := a.Status()
		conflicts := 0
		for _, s := range status {
			if !s.Since.IsZero() {
				t.Fatalf("%s is announced although another machine has it", s.Address)
			}
			if l.macs[s.Conflict] == "b" {
				conflicts++
			}
		}
		return conflicts == 2, fmt.Sprintf("status %+v, want a conflict with b for both", status)
	})
}

func FuzzARP(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	f.Add(probeARP(vip, mac))
	for _, frame := range gratuitousARP(vip, mac) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, ok := parseARP(frame)
		if !ok {
			return
		}
		again, ok := parseARP(m.frame(broadcast))
		if !ok || fmt.Sprint(again) != fmt.Sprint(m) {
			t.Errorf("read %v, then %v", m, again)
		}
	})
}

func FuzzNDP(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	f.Add(probeNS(vip6, mac))
	f.Add(unsolicitedNA(vip6, mac))
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, ok := parseNDP(frame)
		if !ok {
			return
		}
		if again, ok := parseNDP(m.frame()); !ok || again.Target != m.Target || again.Source != m.Source || again.Type != m.Type {
			t.Errorf("read %+v, then %+v", m, again)
		}
		if _, ok := parseNDP(m.answer(mac)); !ok {
			t.Errorf("the answer to %+v is none", m)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	f.Add(question(broadcast, mac, [8]byte{1}))
	f.Add([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5FWLQ\x01\x02\x00\x0012345678\x00\x00\x00\x00\x00\x00\x00\x07"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		nonce, incarnation, ok := parseAnswer(frame)
		if !ok {
			return
		}
		again := question(broadcast, mac, nonce)
		if !isQuestion(frame) || !isQuestion(again) || incarnation == 0 && len(frame) < len(again) {
			t.Errorf("an answer that no question belongs to: %x", frame)
		}
	})
}
