package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/fault"
	"github.com/fairway-net/fairway/lab/topology"
)

// keepalivedLabName is that of the network in which keepalived is measured.
const keepalivedLabName = "bench-keepalived"

// rivals are two hosts with keepalived, one of which has the address. An echo
// server answers at the address on both.
type rivals struct {
	lab   *topology.Lab
	nodes []*topology.Node
	vip   netip.Addr
	dir   string
	ends  []func() error
}

// keepalived measures how long an address of keepalived's is silent when the host
// that has it loses power, at its default interval and at a tenth of it.
func (r *announceRun) keepalived(ctx context.Context) error {
	if _, err := exec.LookPath("keepalived"); err != nil {
		r.Log.Info("not measured", "way", wayKeepalived, "reason", err)
		return nil
	}
	var errs []error
	for _, interval := range []string{"1", "0.1"} {
		text, err := r.keepalivedEvery(ctx, interval)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		who := fmt.Sprintf("keepalived, adverts every %s s", interval)
		if r.IPv6 {
			who += ", IPv6"
		}
		power := events()[slices.IndexFunc(events(), func(e event) bool { return e.name == "power" })]
		r.note(power, who, text)
	}
	return errors.Join(errs...)
}

func (r *announceRun) keepalivedEvery(ctx context.Context, interval string) (text string, err error) {
	k, err := newRivals(r.IPv6)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, k.remove()) }()
	for i := range k.nodes {
		if err := errors.Join(k.answer(i), k.start(i, interval)); err != nil {
			return "", err
		}
	}
	var gaps []time.Duration
	for range r.Repetitions {
		gap, err := k.once(ctx, interval)
		if err != nil {
			return "", err
		}
		gaps = append(gaps, gap)
	}
	slices.Sort(gaps)
	return fmt.Sprintf("longest gap p50 %s, p99 %s, max %s (%d times)", milliseconds(percentile(gaps, 50)),
		milliseconds(percentile(gaps, 99)), milliseconds(gaps[len(gaps)-1]), len(gaps)), nil
}

func newRivals(v6 bool) (_ *rivals, err error) {
	if err := topology.Remove(keepalivedLabName); err != nil { // what a crash left
		return nil, err
	}
	k := &rivals{vip: netip.MustParseAddr("172.30.210.1")}
	if v6 {
		k.vip = netip.MustParseAddr("fd00:172:30::d201")
	}
	if k.lab, err = topology.New(keepalivedLabName, topology.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.remove())
		}
	}()
	if k.dir, err = os.MkdirTemp("", "fairway-bench-"); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	for _, name := range []string{"a", "b"} {
		n, err := k.lab.AddNode(name)
		if err != nil {
			return nil, err
		}
		k.nodes = append(k.nodes, n)
	}
	return k, nil
}

func (k *rivals) remove() error {
	var errs []error
	for _, end := range k.ends {
		errs = append(errs, end())
	}
	if k.dir != "" {
		errs = append(errs, os.RemoveAll(k.dir))
	}
	return errors.Join(append(errs, k.lab.Remove())...)
}

// answer has a host echo datagrams that come to the address, when it has that.
func (k *rivals) answer(i int) error {
	free := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(err, failed)
	}}
	var conn net.PacketConn
	err := k.nodes[i].Do(func() (err error) {
		conn, err = free.ListenPacket(context.Background(), "udp", netip.AddrPortFrom(k.vip, portOfService).String())
		return err
	})
	if err != nil {
		return fmt.Errorf("answer for keepalived: %w", err)
	}
	k.ends = append(k.ends, conn.Close)
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && n > len("echo ") {
				_, _ = conn.WriteTo(buffer[len("echo "):n], from) // one that can't be sent is lost
			}
		}
	}()
	return nil
}

// start starts keepalived on a host.
func (k *rivals) start(i int, interval string) error {
	n := k.nodes[i]
	file := func(suffix string) string { return filepath.Join(k.dir, n.Name+suffix) }
	text := fmt.Sprintf(`global_defs {
  router_id %s
  vrrp_version 3
}
vrrp_instance bench {
  state BACKUP
  nopreempt
  interface eth0
  virtual_router_id 51
  priority %d
  advert_int %s
  virtual_ipaddress {
    %s/%d dev eth0
  }
}
`, n.Name, 100-i, interval, k.vip, k.vip.BitLen())
	if err := os.WriteFile(file(".conf"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("configure keepalived: %w", err)
	}
	for _, left := range []string{".pid", ".vrrp"} { // of one that was killed
		if err := os.Remove(file(left)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("start keepalived: %w", err)
		}
	}
	cmd := exec.Command("keepalived", "--dont-fork", "--log-console", "--vrrp", "-f", file(".conf"), "-p", file(".pid"), "-r", file(".vrrp"))
	log, err := os.Create(file(".log"))
	if err != nil {
		return fmt.Errorf("start keepalived: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	path, err := topology.Cgroup(keepalivedLabName, n.Name+"/keepalived")
	if err != nil {
		return err
	}
	group, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("start keepalived: %w", err)
	}
	defer group.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := n.Start(cmd); err != nil {
		return fmt.Errorf("start keepalived: %w", err)
	}
	go cmd.Wait() //nolint:errcheck // it is killed
	return nil
}

// owner is the host that has the address.
func (k *rivals) owner() (int, error) {
	found := -1
	for i, n := range k.nodes {
		has, err := k.hasAddress(n)
		if err != nil {
			return 0, err
		}
		if has && found >= 0 {
			return 0, errors.New("both hosts have the address")
		}
		if has {
			found = i
		}
	}
	if found < 0 {
		return 0, errors.New("no host has the address")
	}
	return found, nil
}

func (k *rivals) hasAddress(n *topology.Node) (has bool, err error) {
	err = n.Do(func() error {
		list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		has = slices.ContainsFunc(list, func(a netlink.Addr) bool { return a.IP.Equal(k.vip.AsSlice()) })
		return err
	})
	return has, err
}

// once takes the power from the host that has the address, and gives it back later.
func (k *rivals) once(ctx context.Context, interval string) (gap time.Duration, err error) {
	if err := takePrecedence(keepalivedLabName); err != nil {
		return 0, err
	}
	owner := 0
	err = poll(ctx, settleTimeout, 50*time.Millisecond, func() (err error) {
		owner, err = k.owner()
		return err
	})
	if err != nil {
		return 0, err
	}
	pause(ctx, 2*time.Second) // for the other one to be a backup
	flow, err := startProbe(k.lab.Client().NS, netip.AddrPortFrom(k.vip, portOfService))
	if err != nil {
		return 0, err
	}
	pause(ctx, calm)
	n := k.nodes[owner]
	if err := n.Break(fault.Power); err != nil {
		return 0, errors.Join(err, flow.close())
	}
	heard := awaitAnswers(ctx, flow)
	err = flow.close()
	gap, _ = flow.gap()
	if !heard {
		err = errors.Join(err, errors.New("keepalived: no host took the address over"))
	}
	// What the kernel of a machine without power holds is gone.
	lose := n.Do(func() error {
		eth, err := netlink.LinkByName(topology.NodeInterface)
		if err != nil {
			return err
		}
		bits := k.vip.BitLen()
		return netlink.AddrDel(eth, &netlink.Addr{IPNet: &net.IPNet{IP: k.vip.AsSlice(), Mask: net.CIDRMask(bits, bits)}})
	})
	return gap, errors.Join(err, lose, n.Mend(), k.start(owner, interval))
}
