package packet

import (
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/tcfilter"
)

// Programs of others may be at an interface before ours. A packet that such a program passes
// (TCX_PASS, TC_ACT_OK) or drops never comes to ours, and the Service doesn't answer, though
// everything of ours is as it should be. Nobody can tell from outside which packets those
// are, so the log names the programs.

// ownPrograms are those of this project that are before the data plane's on purpose.
var ownPrograms = []string{"steering", "handoff", "strays", "respond", "enters", "departs", xdpProgram}

// Ahead names the programs of others that see packets before ours at the node whose pins are
// in a directory.
func Ahead(dir string) ([]string, error) {
	p, err := New(nil)
	if err != nil {
		return nil, err
	}
	defer p.netlink.Close()
	live, err := kernel.List(p.netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	a, err := p.newAttacher(dir)
	if err != nil {
		return nil, err
	}
	if running, err := a.running(live); err != nil || !running {
		return nil, err
	}
	return allAhead(a, dir, live)
}

// ahead names the programs of others that see packets at an interface before ours: "NAME at
// INTERFACE SIDE".
func (t *tcx) ahead(l netlink.Link, sidesOf map[string]string) (names []string, err error) {
	for side := range sidesOf {
		info, err := pins.LinkInfo(t.pin(l.Attrs().Index, side))
		if err != nil || info == nil {
			return names, err
		}
		found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: sides[side]})
		if isGone(err) {
			return nil, nil
		}
		if err != nil {
			return names, fmt.Errorf("list programs at interface %s: %w", l.Attrs().Name, err)
		}
		for _, at := range found.Programs {
			if at.ID == info.Program {
				break
			}
			name, err := stranger(at.ID)
			if err != nil {
				return names, err
			}
			if name != "" {
				names = append(names, fmt.Sprintf("%s at %s %s", name, l.Attrs().Name, side))
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// stranger is the name of a program that isn't this project's, or its number, where this
// process may not read names (CAP_SYS_ADMIN); "" if it is ours, or has gone.
func stranger(id ebpf.ProgramID) (string, error) {
	name, err := programName(id)
	if !errors.Is(err, unix.EPERM) {
		if slices.Contains(ownPrograms, name) {
			name = ""
		}
		return name, err
	}
	if own, err := tcfilter.IsPinned(id); own || err != nil {
		return "", err
	}
	return fmt.Sprintf("program %d", id), nil
}

// programName is a program's name; "" if it has gone.
func programName(id ebpf.ProgramID) (string, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open program %d: %w", id, err)
	}
	info, err := p.Info()
	if err := errors.Join(err, p.Close()); err != nil {
		return "", fmt.Errorf("read program %d: %w", id, err)
	}
	return info.Name, nil
}

// ahead names filters of a lower priority number.
func (c *clsact) ahead(l netlink.Link, sidesOf map[string]string) (names []string, err error) {
	for side := range sidesOf {
		before, err := c.at(l, side).Before()
		if err != nil {
			return names, err
		}
		for _, name := range before {
			if !slices.ContainsFunc(ownPrograms, func(own string) bool { return strings.Contains(name, own) }) && !strings.HasPrefix(name, filterPrefix) {
				names = append(names, fmt.Sprintf("%s at %s %s", name, l.Attrs().Name, side))
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// allAhead asks for all interfaces.
func allAhead(a attacher, dir string, live []netlink.Link) (names []string, err error) {
	kinds := kindsOf(live)
	for _, l := range live {
		some, err := a.ahead(l, sidePrograms[kinds[l.Attrs().Index]])
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
		if some, err = aheadByXDP(dir, l); err != nil {
			return nil, err
		}
		names = append(names, some...)
	}
	return names, nil
}

// aheadByXDP names the program that an interface's driver runs before there is a packet for
// tc: what it doesn't pass (XDP_PASS), or sends elsewhere, never comes to ours.
func aheadByXDP(dir string, l netlink.Link) ([]string, error) {
	xdp := l.Attrs().Xdp
	if xdp == nil || !xdp.Attached || xdp.ProgId == 0 {
		return nil, nil
	}
	own, err := ownDriver(dir, l.Attrs().Index)
	if err != nil || own == ebpf.ProgramID(xdp.ProgId) {
		return nil, err
	}
	name, err := stranger(ebpf.ProgramID(xdp.ProgId))
	if err != nil || name == "" {
		return nil, err
	}
	return []string{fmt.Sprintf("%s at %s xdp", name, l.Attrs().Name)}, nil
}

// ownDriver is the program that we have at an interface's driver; 0 without one.
func ownDriver(dir string, index int) (ebpf.ProgramID, error) {
	links, err := pins.Links(filepath.Join(dir, pins.DriverLinks), strconv.Itoa(index)+"-*")
	for _, pin := range links {
		info, err := pins.LinkInfo(pin)
		if err != nil {
			return 0, err
		}
		if info != nil && info.XDP() != nil && int(info.XDP().Ifindex) == index {
			return info.Program, nil
		}
	}
	return 0, err
}

// logAhead says in the log who is before our programs, when that changes.
func (p *Path) logAhead(live []netlink.Link) error {
	names, err := allAhead(p.attacher, p.store.Dir, live)
	if err != nil || slices.Equal(names, p.before) {
		return err
	}
	p.before = names
	if len(names) > 0 {
		slog.Warn("programs of others see packets before those of the ebpf mode: packets that they let pass or drop (TCX_PASS, TC_ACT_OK, XDP_DROP) aren't served; they should give TCX_NEXT, TC_ACT_UNSPEC or XDP_PASS",
			"programs", strings.Join(names, ", "))
	}
	return nil
}
