//go:build !agentonly

package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/test/netnstest"
)

// waitTimeout bounds what is waited for; only a failure takes so long.
const waitTimeout = 5 * time.Minute

// asProcess has the test's program be a process that people would expose: it
// answers over HTTP with the name that is the variable's value.
const asProcess = "FAIRWAY_TEST_PROCESS"

func serveName(name string) {
	err := http.ListenAndServe(":8000", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) }))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// network is machines at one switch: m1 to m3 and a laptop, at 10.77.0.11 to .13
// and .50, and at fd00:77::11 and so on.
type network struct {
	t       *testing.T
	only    string // "IPv4" or "IPv6" where machines have that family alone
	control *netns.NS
	sw      *netlink.Handle
	hosts   map[string]*plainMachine
}

// plainMachine has a network, a name and files of its own.
type plainMachine struct {
	n    *network
	name string
	ns   *netns.NS
	dir  string // its /var/lib/fairway, /run, /usr/local/bin and systemd's units
}

func newNetwork(t *testing.T) *network { return newNetworkOf(t, "") }

// newNetworkOf is a network whose machines have one family of addresses alone; both with "".
func newNetworkOf(t *testing.T, only string) *network {
	t.Helper()
	n := &network{t: t, only: only, hosts: map[string]*plainMachine{}}
	n.control = n.namespace()
	var err error
	if n.sw, err = n.control.Netlink(); err != nil {
		t.Fatal(err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "switch"}}
	n.must(n.sw.LinkAdd(bridge))
	n.must(n.sw.LinkSetUp(bridge))
	for name, number := range map[string]int{"m1": 11, "m2": 12, "m3": 13, "laptop": 50} {
		n.hosts[name] = n.connect(bridge, name, number)
	}
	return n
}

func (n *network) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *network) namespace() *netns.NS {
	n.t.Helper()
	ns := netnstest.New(n.t)
	return ns
}

// connect makes a machine and plugs it in.
func (n *network) connect(bridge *netlink.Bridge, name string, number int) *plainMachine {
	n.t.Helper()
	m := &plainMachine{n: n, name: name, ns: n.namespace(), dir: n.t.TempDir()}
	n.must(n.sw.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Index, Flags: net.FlagUp},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(m.ns.Fd()),
	}))
	handle, err := m.ns.Netlink()
	n.must(err)
	defer handle.Close()
	n.must(m.ns.Do(func() error { // no waiting for others with the same address
		return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_dad", []byte("0"), 0)
	}))
	for _, link := range []string{"lo", "eth0"} {
		l, err := handle.LinkByName(link)
		n.must(err)
		n.must(handle.LinkSetUp(l))
		if link == "lo" {
			continue
		}
		for _, text := range []string{fmt.Sprintf("10.77.0.%d/24", number), fmt.Sprintf("fd00:77::%d/64", number)} {
			address, err := netlink.ParseAddr(text)
			n.must(err)
			if n.lacks(address.IP) {
				continue
			}
			n.must(handle.AddrAdd(l, address))
		}
		for _, gateway := range []string{"10.77.0.1", "fd00:77::1"} {
			if gw := net.ParseIP(gateway); !n.lacks(gw) {
				n.must(handle.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: gw}))
			}
		}
	}
	for _, folder := range []string{"lib", "run", "bin", "units"} {
		n.must(os.Mkdir(filepath.Join(m.dir, folder), 0o755))
	}
	// What people have downloaded, and what few containers have.
	fairway := "#!/bin/sh\n" + asFairway + "=1 exec " + os.Args[0] + " \"$@\"\n"
	n.must(os.WriteFile(filepath.Join(m.dir, "fairway"), []byte(fairway), 0o755))
	n.must(os.WriteFile(filepath.Join(m.dir, "bin", "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755))
	return m
}

// lacks reports whether machines have no addresses of an address's family.
func (n *network) lacks(a net.IP) bool {
	return n.only != "" && (a.To4() != nil) != (n.only == "IPv4")
}

// plug connects a machine with the switch, or takes its cable out.
func (n *network) plug(name string, in bool) {
	n.t.Helper()
	port, err := n.sw.LinkByName(name)
	n.must(err)
	if in {
		n.must(n.sw.LinkSetUp(port))
	} else {
		n.must(n.sw.LinkSetDown(port))
	}
}

// enter has a command find the machine's name and files.
const enter = `set -e; hostname "$1"; mount -t tmpfs none /var/lib; mkdir /var/lib/fairway; mount --bind "$2/lib" /var/lib/fairway
mount --bind "$2/run" /run; mount --bind "$2/bin" /usr/local/bin; [ ! -d /etc/systemd/system ] || mount --bind "$2/units" /etc/systemd/system; cd "$2"; PATH="/usr/local/bin:$PATH" exec sh -c "$3"`

// command is a command line on the machine, for a shell.
func (m *plainMachine) command(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", enter, "sh", m.name, m.dir, line)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = 10 * time.Second
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}

// run runs a command line to its end and returns what it prints.
func (m *plainMachine) run(line string) string {
	m.n.t.Helper()
	ctx, cancel := context.WithTimeout(m.n.t.Context(), waitTimeout)
	defer cancel()
	var out output
	c := m.command(ctx, line)
	c.Stdout, c.Stderr = &out, &out
	err := m.ns.Start(c)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		m.n.t.Fatalf("%s: %s: %v\n%s", m.name, line, err, out.String())
	}
	return out.String()
}

// start runs a command line until the test ends, or what it returns is called.
func (m *plainMachine) start(line string) (out *output, kill func()) {
	m.n.t.Helper()
	return m.startWith(line, new(int))
}

// startWith is start, and says which process it is.
func (m *plainMachine) startWith(line string, pid *int) (out *output, kill func()) {
	m.n.t.Helper()
	out = &output{}
	c := m.command(context.Background(), line)
	c.Stdout, c.Stderr = out, out
	m.n.must(m.ns.Start(c))
	*pid = c.Process.Pid
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait() // killed
		}
	}
	m.n.t.Cleanup(func() {
		kill()
		if m.n.t.Failed() {
			m.n.t.Logf("%s: %s:\n%s", m.name, line, out.String())
		}
	})
	return out, kill
}

// startEnding is start, and a way to ask the command to end.
func (m *plainMachine) startEnding(line string) (out *output, terminate func()) {
	m.n.t.Helper()
	pid := 0
	out, _ = m.startWith(line, &pid)
	return out, func() { m.n.must(syscall.Kill(-pid, syscall.SIGTERM)) }
}

// dial connects from the machine.
func (m *plainMachine) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = m.ns.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// owner is the machine at whose network card an address is, as the asking one
// has heard it; "" is none.
func (n *network) owner(asking string, address netip.Addr) (string, error) {
	handle, err := n.hosts[asking].ns.Netlink()
	if err != nil {
		return "", err
	}
	defer handle.Close()
	neighbours, err := handle.NeighList(0, 0)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, neighbour := range neighbours {
		if a, ok := netip.AddrFromSlice(neighbour.IP); !ok || a.Unmap() != address {
			continue
		}
		for name, m := range n.hosts {
			card, err := m.card()
			errs = append(errs, err)
			if card != "" && card == neighbour.HardwareAddr.String() {
				return name, nil
			}
		}
	}
	return "", errors.Join(errs...)
}

// card is the address of the machine's network card.
func (m *plainMachine) card() (string, error) {
	handle, err := m.ns.Netlink()
	if err != nil {
		return "", err
	}
	defer handle.Close()
	l, err := handle.LinkByName("eth0")
	if err != nil {
		return "", err
	}
	return strings.ToLower(l.Attrs().HardwareAddr.String()), nil
}
