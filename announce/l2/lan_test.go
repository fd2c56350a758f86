//go:build !race

package l2

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/netnstest"
	"github.com/fairway-net/fairway/test/wait"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/netns"
)

var (
	vip  = netip.MustParseAddr("192.0.2.1")
	vip6 = netip.MustParseAddr("2001:db8::1")
)

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
	ns := netnstest.New(l)
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

func (l *lan) await(check func() (bool, string)) {
	l.Helper()
	for late := range wait.Tries(20 * time.Second) {
		ok, text := check()
		if ok {
			return
		}
		if late {
			l.Fatal(text)
		}
	}
}
