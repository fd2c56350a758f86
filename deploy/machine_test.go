package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/netnstest"
	"github.com/fairway-net/fairway/test/wait"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/netns"
)

// machines are systems at one switch, each with a systemd of its own in namespaces of the
// test's kernel; see test/systemd/boot.
type machines struct {
	t      *testing.T
	debian string // the system that each is a copy of
	groups string // where cgroup v2 is mounted
	ns     *netns.NS
	sw     *netlink.Handle
	bridge *netlink.Bridge
}

func newMachines(t *testing.T, debian string) *machines {
	t.Helper()
	m := &machines{t: t, debian: debian, bridge: &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "switch"}}}
	var err error
	m.groups, err = cgroup.Root()
	m.must(err)
	m.ns = m.namespace()
	m.sw, err = m.ns.Netlink()
	m.must(err)
	m.must(m.sw.LinkAdd(m.bridge))
	m.must(m.sw.LinkSetUp(m.bridge))
	return m
}

func (m *machines) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machines) namespace() *netns.NS {
	m.t.Helper()
	ns := netnstest.New(m.t)
	return ns
}

// machine is one of them, at 10.78.0.NUMBER and fd00:78::NUMBER.
type machine struct {
	*machines
	name   string
	number int
	root   string
	run    *exec.Cmd // nil while it is powered off
	output bytes.Buffer
}

// machine makes one with a program in /root, and boots it.
func (m *machines) machine(name string, number int, program string) *machine {
	m.t.Helper()
	n := &machine{machines: m, name: name, number: number, root: filepath.Join(m.t.TempDir(), "root")}
	if out, err := exec.Command("cp", "-a", "--reflink=auto", m.debian, n.root).CombinedOutput(); err != nil {
		m.t.Fatalf("copy %s: %v: %s", m.debian, err, out)
	}
	if out, err := exec.Command("cp", program, filepath.Join(n.root, "root/fairway")).CombinedOutput(); err != nil {
		m.t.Fatalf("copy %s: %v: %s", program, err, out)
	}
	m.t.Cleanup(func() {
		if m.t.Failed() && n.run != nil {
			out, _ := n.try("journalctl --no-pager --lines 200") // whatever can be had
			m.t.Logf("%s:\n%s%s", name, n.output.String(), out)
		}
		n.pullThePlug()
	})
	n.boot()
	return n
}

// boot starts the system with a new network, as a kernel that has just started
// has: nothing of an earlier one is left.
func (n *machine) boot() {
	n.t.Helper()
	ns := n.namespace()
	n.connect(ns)
	n.run = exec.Command("../test/systemd/boot", n.root, n.name, n.group())
	n.run.Stdout, n.run.Stderr = &n.output, &n.output
	n.run.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	n.must(ns.Start(n.run))
	n.eventually("system is up", "running", func() (string, error) { return n.try("systemctl is-system-running") })
}

func (n *machine) group() string {
	return filepath.Join(n.groups, fmt.Sprintf("fairway-test-%d-%s", os.Getpid(), n.name))
}

func (n *machine) connect(ns *netns.NS) {
	n.t.Helper()
	if old, err := n.sw.LinkByName(n.name); err == nil { // of a namespace that still ends
		n.must(n.sw.LinkDel(old))
	}
	n.must(n.sw.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: n.name, MasterIndex: n.bridge.Index, Flags: net.FlagUp},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(ns.Fd()),
	}))
	handle, err := ns.Netlink()
	n.must(err)
	defer handle.Close()
	n.must(ns.Do(func() error { // no waiting for others with the same address
		return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_dad", []byte("0"), 0)
	}))
	eth, err := handle.LinkByName("eth0")
	n.must(err)
	n.must(handle.LinkSetUp(eth))
	for _, text := range []string{fmt.Sprintf("10.78.0.%d/24", n.number), fmt.Sprintf("fd00:78::%d/64", n.number)} {
		address, err := netlink.ParseAddr(text)
		n.must(err)
		n.must(handle.AddrAdd(eth, address))
	}
	n.must(handle.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.IPv4(10, 78, 0, 1)}))
}

// first is the pid of the system's first process.
func (n *machine) first() string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", n.run.Process.Pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// try runs a command line on the machine.
func (n *machine) try(line string) (string, error) {
	first := n.first()
	if first == "" {
		return "", errors.New("the system doesn't run")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "nsenter", "--target", first, "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--root", "--wd",
		"/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "bash", "-c", line)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// sh runs a command line on the machine that must succeed.
func (n *machine) sh(line string) string {
	n.t.Helper()
	out, err := n.try(line)
	if err != nil {
		n.t.Fatalf("%s: %s: %v\n%s", n.name, line, err, out)
	}
	return out
}

// eventually waits until a look holds what it should.
func (n *machine) eventually(what, want string, look func() (string, error)) {
	n.t.Helper()
	var out string
	var err error
	for range wait.Tries(time.Minute) {
		if out, err = look(); err == nil && strings.Contains(out, want) {
			return
		}
	}
	n.t.Fatalf("%s: %s: no %q in\n%s\n%v", n.name, what, want, out, err)
}

// soon waits until what a command line prints holds something.
func (n *machine) soon(line, want string) {
	n.t.Helper()
	n.eventually(line, want, func() (string, error) { return n.try(line) })
}

// powerOff runs a command in the machine that powers it off, and waits until it is off.
func (n *machine) powerOff(command string) {
	n.t.Helper()
	_, _ = n.try(command) // the machine may end before the command returns
	ended := make(chan struct{})
	go func() {
		_ = n.run.Wait() // whatever it ends with
		close(ended)
	}()
	select {
	case <-ended:
		n.run = nil
	case <-time.After(2 * time.Minute):
		n.t.Fatalf("%s: %s: it still runs after two minutes", n.name, command)
	}
}

// pullThePlug ends the machine as a power cut does: the kernel kills its processes, and no
// unit is stopped. It also removes the machine's cgroups.
func (n *machine) pullThePlug() {
	if n.run == nil {
		return
	}
	_ = n.run.Process.Kill() // unshare --kill-child: its systemd is killed with it
	_ = n.run.Wait()
	n.run = nil
	group := n.group()
	_ = os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0)
	for range wait.Tries(5 * time.Second) { // a cgroup can be removed once its processes have ended
		if out, _ := exec.Command("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").CombinedOutput(); len(out) == 0 {
			return
		}
	}
	n.t.Errorf("%s: its groups are left", group)
}
