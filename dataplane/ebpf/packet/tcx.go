package packet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
)

// tcx attaches by pinned links (Linux 6.6), which nobody else can take away.
type tcx struct{ dir, build string }

// newAttacher takes the best way there is.
func (p *Path) newAttacher(dir string) (attacher, error) {
	t := &tcx{dir: filepath.Join(dir, pins.InterfaceLinks), build: p.build}
	err := probeTCX()
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) { // a kind of attachment not known
		return &clsact{netlink: p.netlink, build: p.build}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find out whether there is tcx: %w", err)
	}
	return t, nil
}

// probeTCX asks for what is at the loopback interface.
func probeTCX() error {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
	return err
}

// sides are the two ends of an interface.
var sides = map[string]ebpf.AttachType{ingressSide: ebpf.AttachTCXIngress, egressSide: ebpf.AttachTCXEgress, bridgedSide: ebpf.AttachTCXEgress}

// pin is where a link is pinned: INDEX-SIDE-BUILD.
func (t *tcx) pin(index int, side string) string {
	return filepath.Join(t.dir, strconv.Itoa(index)+"-"+side+"-"+t.build)
}

func (t *tcx) running(live []netlink.Link) (bool, error) {
	for _, l := range live {
		links, err := pins.Links(t.dir, strconv.Itoa(l.Attrs().Index)+"-*")
		if err != nil {
			return false, err
		}
		for _, pin := range links {
			if at, err := interfaceOf(pin); err != nil || at == l.Attrs().Index {
				return err == nil, err
			}
		}
	}
	return false, nil
}

func (t *tcx) attached(l netlink.Link, at []string) (bool, error) {
	for _, side := range at {
		index, err := interfaceOf(t.pin(l.Attrs().Index, side))
		if err != nil || index != l.Attrs().Index {
			return false, err
		}
	}
	return true, nil
}

// interfaceOf is the interface that a pinned link leads to; 0 if there is no
// link, or its interface is no more.
func interfaceOf(pin string) (int, error) {
	info, err := pins.LinkInfo(pin)
	if err != nil || info == nil || info.TCX() == nil {
		return 0, err
	}
	return int(info.TCX().Ifindex), nil
}

func (t *tcx) attach(l netlink.Link, programs bySide) error {
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return fmt.Errorf("pin links: %w", err)
	}
	for _, side := range slices.Sorted(maps.Keys(programs)) {
		if err := t.attachSide(l.Attrs().Index, side, programs[side]); err != nil {
			return err
		}
	}
	return nil
}

// attachSide puts a program in the place of the one of another build, at once,
// or adds it.
func (t *tcx) attachSide(index int, side string, program *ebpf.Program) error {
	pin := t.pin(index, side)
	others, err := pins.Links(t.dir, strconv.Itoa(index)+"-"+side+"-*")
	if err != nil {
		return err
	}
	for _, old := range others {
		replaced, err := replaceProgram(old, index, program)
		if err != nil {
			return err
		}
		if replaced {
			return renamePin(old, pin)
		}
		if err := pins.Detach(old); err != nil {
			return err
		}
	}
	own, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: sides[side]})
	if err != nil {
		return err
	}
	if err := own.Pin(pin); err != nil {
		return errors.Join(fmt.Errorf("pin link: %w", err), own.Close())
	}
	return own.Close()
}

// replaceProgram gives a pinned link another program; not if its interface is
// no more.
func replaceProgram(pin string, index int, program *ebpf.Program) (bool, error) {
	at, err := interfaceOf(pin)
	if err != nil || at != index {
		return false, err
	}
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return false, fmt.Errorf("open link %s: %w", pin, err)
	}
	err = l.Update(program)
	return err == nil, errors.Join(err, l.Close())
}

func renamePin(old, pin string) error {
	if old == pin {
		return nil
	}
	if err := os.Rename(old, pin); err != nil {
		return fmt.Errorf("rename pinned link: %w", err)
	}
	return nil
}

func (t *tcx) release(l netlink.Link, kind linkKind) error {
	for _, side := range allSides {
		if _, wanted := sidePrograms[kind][side]; wanted {
			continue
		}
		pin := t.pin(l.Attrs().Index, side)
		if _, err := os.Lstat(pin); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := pins.Detach(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (t *tcx) forget(kinds map[int]linkKind) error {
	links, err := pins.Links(t.dir, "*-*")
	if err != nil {
		return err
	}
	for _, pin := range links {
		name := strings.SplitN(filepath.Base(pin), "-", 3)
		if index, err := strconv.Atoi(name[0]); err == nil {
			if _, wanted := sidePrograms[kinds[index]][name[1]]; wanted {
				continue
			}
		}
		if err := pins.Detach(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// remove detaches the programs.
func (t *tcx) remove([]netlink.Link) error { return t.forget(nil) }
