package packet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	ebpfmaps "github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/ethtool"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Interfaces with outside traffic may have a program in their driver, which sends packets of
// known connections on before the kernel makes socket buffers of them (bpf/xdp.h). What it
// doesn't handle comes to the other programs, so these are always there first, and go last.

// xdpProgram is the program at drivers.
const xdpProgram = "fairway_xdp"

// driverState is what is known of an interface that may have the program.
type driverState struct {
	name string
	why  string // it hasn't; "" if it has
}

// drivers are the interfaces that may have the program. They are asked about also while
// interfaces are brought up to date, which may take long.
type drivers struct {
	mu   sync.Mutex
	at   map[int]driverState
	sent *ebpf.Map // counts packets; nil until there are programs
}

// set notes an interface, and reports whether that is news.
func (d *drivers) set(index int, now driverState) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before, known := d.at[index]; known && before == now {
		return false
	}
	if d.at == nil {
		d.at = map[int]driverState{}
	}
	d.at[index] = now
	return true
}

// keep forgets the interfaces that aren't to be kept.
func (d *drivers) keep(wanted func(index int) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.at, func(index int, _ driverState) bool { return !wanted(index) })
}

// driverKinds are the kinds of interfaces that may carry outside traffic and have a driver
// worth asking.
var driverKinds = []string{"device", "veth", "bond", "team"}

// driverPin is where the link is pinned by which the program is at an interface's driver.
func (p *Path) driverPin(dir string, index int) string {
	return filepath.Join(dir, pins.DriverLinks, strconv.Itoa(index)+"-"+p.build)
}

// syncDriver puts the program into an interface's driver, or takes it out.
func (p *Path) syncDriver(l netlink.Link, kind linkKind, addresses []netlink.Addr) error {
	a := l.Attrs()
	if !p.isUplink(l, kind, addresses) {
		p.drivers.keep(func(index int) bool { return index != a.Index })
		return p.leaveDriver(a.Index)
	}
	features, err := xdpFeatures(p.netlink, a.Index)
	if err != nil {
		return err
	}
	why, err := p.refusal(l, features)
	if err == nil && why == "" {
		why, err = p.enterDriver(a.Index)
	}
	if err != nil {
		return err
	}
	p.noteDriver(a.Index, driverState{a.Name, why})
	u := tcUplink{Flags: features.uplinkFlags()}
	copy(u.Mac[:], a.HardwareAddr)
	if l.Type() == "veth" {
		u.Flags |= uplinkVeth
	}
	if why == "" {
		u.Flags |= uplinkTakes
	} else if err := p.leaveDriver(a.Index); err != nil {
		return err
	}
	if err := p.uplinks().Put(uint32(a.Index), u); err != nil {
		return fmt.Errorf("write uplink: %w", err)
	}
	return p.Steps.At("driver done")
}

func (p *Path) uplinks() *ebpf.Map { return p.store.Maps[tcMapUplinks] }

// isUplink reports whether packets of the outside come in at an interface that has a driver:
// one that has an address of the node, and isn't one of pods.
func (p *Path) isUplink(l netlink.Link, kind linkKind, addresses []netlink.Addr) bool {
	if p.XDP == "" || p.XDP == kernel.XDPOff || kind != ethernet || !slices.Contains(driverKinds, l.Type()) ||
		p.settings.Pods.Matches(netip.Addr{}, l.Attrs().Name) {
		return false
	}
	return slices.ContainsFunc(p.settings.NodeAddrs, func(own netip.Addr) bool { return hasAddress(addresses, own) })
}

// refusal says why the program may not be at a driver that perhaps would take it.
func (p *Path) refusal(l netlink.Link, features xdpFeature) (string, error) {
	if features&xdpBasic == 0 || features&xdpRedirects == 0 {
		return "the driver offers no native XDP", nil
	}
	untags, err := ethtool.StripsVLANTags(l.Attrs().Name)
	if err != nil || !untags {
		return "", err
	}
	all, err := kernel.List(p.netlink.LinkList)
	if err != nil {
		return "", fmt.Errorf("list interfaces: %w", err)
	}
	if slices.ContainsFunc(all, func(on netlink.Link) bool {
		return on.Type() == "vlan" && on.Attrs().ParentIndex == l.Attrs().Index
	}) {
		return fmt.Sprintf("the interface takes tags off, and has VLANs, whose packets XDP couldn't tell apart (ethtool -K %s rxvlan off)", l.Attrs().Name), nil
	}
	return "", nil
}

// enterDriver makes the program of this build run in an interface's driver, or says why it
// can't.
func (p *Path) enterDriver(index int) (why string, err error) {
	pin := p.driverPin(p.store.Dir, index)
	at, err := driverOf(pin)
	if err != nil || at == index {
		return "", err
	}
	if err := p.need(xdpProgram); err != nil {
		return "", err
	}
	dir := filepath.Dir(pin)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("pin links: %w", err)
	}
	others, err := pins.Links(dir, strconv.Itoa(index)+"-*")
	if err != nil {
		return "", err
	}
	for _, old := range others {
		if at, err := driverOf(old); err != nil {
			return "", err
		} else if at == index {
			return "", errors.Join(updateLink(old, p.programs[xdpProgram]), renamePin(old, pin))
		}
		if err := os.Remove(old); err != nil {
			return "", fmt.Errorf("remove pinned link: %w", err)
		}
	}
	own, err := link.AttachXDP(link.XDPOptions{Program: p.programs[xdpProgram], Interface: index, Flags: link.XDPDriverMode})
	switch {
	case isGone(err):
		return "", err
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return p.occupied(index), nil
	case err != nil:
		return fmt.Sprintf("the driver refuses: %v", err), nil
	}
	if err := own.Pin(pin); err != nil {
		return "", errors.Join(fmt.Errorf("pin link: %w", err), own.Close())
	}
	return "", own.Close()
}

// occupied says whose program is at an interface's driver.
func (p *Path) occupied(index int) string {
	l, err := p.netlink.LinkByIndex(index)
	if err != nil || l.Attrs().Xdp == nil {
		return "another XDP program is there"
	}
	name, err := programName(ebpf.ProgramID(l.Attrs().Xdp.ProgId))
	if err != nil || name == "" {
		return "another XDP program is there"
	}
	return fmt.Sprintf("another XDP program is there: %s", name)
}

func updateLink(pin string, program *ebpf.Program) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("open link %s: %w", pin, err)
	}
	return errors.Join(l.Update(program), l.Close())
}

// driverOf is the interface that a pinned link leads to; 0 if there is no link, or its
// interface is no more.
func driverOf(pin string) (int, error) {
	info, err := pins.LinkInfo(pin)
	if err != nil || info == nil || info.XDP() == nil {
		return 0, err
	}
	return int(info.XDP().Ifindex), nil
}

// leaveDriver takes the program out of an interface's driver, whichever build it is of.
func (p *Path) leaveDriver(index int) error {
	links, err := pins.Links(filepath.Join(p.store.Dir, pins.DriverLinks), strconv.Itoa(index)+"-*")
	if err != nil {
		return err
	}
	if err := p.uplinks().Delete(uint32(index)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete uplink: %w", err)
	}
	for _, pin := range links {
		if err := pins.Detach(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// leaveDrivers takes the program out of all drivers.
func leaveDrivers(dir string) error {
	links, err := pins.Links(filepath.Join(dir, pins.DriverLinks), "*-*")
	if err != nil {
		return err
	}
	for _, pin := range links {
		if err := pins.Detach(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// forgetDrivers forgets interfaces that are no more.
func (p *Path) forgetDrivers(live map[int]bool) error {
	p.drivers.keep(func(index int) bool { return live[index] })
	var index uint32
	var u tcUplink
	var gone []uint32
	all := p.uplinks().Iterate()
	for all.Next(&index, &u) {
		if !live[int(index)] {
			gone = append(gone, index)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read uplinks: %w", err)
	}
	for _, index := range gone {
		if err := p.uplinks().Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete uplink: %w", err)
		}
	}
	links, err := pins.Links(filepath.Join(p.store.Dir, pins.DriverLinks), "*-*")
	if err != nil {
		return err
	}
	for _, pin := range links {
		if at, err := driverOf(pin); err != nil || live[at] {
			if err != nil {
				return err
			}
			continue
		}
		if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove pinned link: %w", err)
		}
	}
	return nil
}

// noteDriver says in the log what has changed.
func (p *Path) noteDriver(index int, now driverState) {
	if !p.drivers.set(index, now) {
		return
	}
	switch {
	case now.why == "":
		slog.Info("packets of known connections are forwarded in the driver (XDP)", "interface", now.name)
	case p.XDP == kernel.XDPNative:
		slog.Warn("no XDP at this interface: its packets are handled as without", "interface", now.name, "reason", now.why)
	default:
		slog.Info("no XDP at this interface: its packets are handled as without", "interface", now.name, "reason", now.why)
	}
}

// Drivers are the interfaces that should have the program, by name; nil if there are none.
func (p *Path) Drivers(ctx context.Context) (*kernel.Drivers, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.drivers.mu.Lock()
	defer p.drivers.mu.Unlock()
	if len(p.drivers.at) == 0 || p.drivers.sent == nil {
		return nil, nil
	}
	d := &kernel.Drivers{}
	for _, at := range p.drivers.at {
		d.Interfaces = append(d.Interfaces, kernel.Driver{Interface: at.name, XDP: at.why == "", Why: at.why})
	}
	slices.SortFunc(d.Interfaces, func(a, b kernel.Driver) int { return cmp.Compare(a.Interface, b.Interface) })
	var err error
	if d.Forwarded, err = ebpfmaps.Sum(p.drivers.sent, uint32(tcDriverCountSENT)); err != nil {
		return nil, fmt.Errorf("read map driven: %w", err)
	}
	return d, nil
}
