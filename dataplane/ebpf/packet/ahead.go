package packet

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
)

// Programs of others may be at an interface before ours. A packet that such a program passes
// (TCX_PASS, TC_ACT_OK) or drops never comes to ours, and the Service doesn't answer, though
// everything of ours is as it should be. Nobody can tell from outside which packets those
// are, so it is said who is there.

// ownPrograms are those of this project that are before the data plane's on purpose.
var ownPrograms = []string{"handoff", "strays", "respond", "enters", "departs", xdpProgram}

// ahead names the programs of others that see packets at an interface before ours: "NAME at
// INTERFACE SIDE". Where this process may not read names (CAP_SYS_ADMIN), nothing is known.
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
			name, err := programName(at.ID)
			if errors.Is(err, unix.EPERM) {
				return nil, nil
			}
			if err != nil {
				return names, err
			}
			if name != "" && !slices.Contains(ownPrograms, name) {
				names = append(names, fmt.Sprintf("%s at %s %s", name, l.Attrs().Name, side))
			}
		}
	}
	slices.Sort(names)
	return names, nil
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
func allAhead(a attacher, live []netlink.Link) (names []string, err error) {
	kinds := kindsOf(live)
	for _, l := range live {
		some, err := a.ahead(l, sidePrograms[kinds[l.Attrs().Index]])
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
		if some, err = aheadByXDP(l); err != nil {
			return nil, err
		}
		names = append(names, some...)
	}
	return names, nil
}

// aheadByXDP names the program that an interface's driver runs before there is a packet for
// tc: what it doesn't pass (XDP_PASS), or sends elsewhere, never comes to ours.
func aheadByXDP(l netlink.Link) ([]string, error) {
	xdp := l.Attrs().Xdp
	if xdp == nil || !xdp.Attached || xdp.ProgId == 0 {
		return nil, nil
	}
	name, err := programName(ebpf.ProgramID(xdp.ProgId))
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, nil
	case err != nil:
		return nil, err
	case name == "" || slices.Contains(ownPrograms, name):
		return nil, nil
	}
	return []string{fmt.Sprintf("%s at %s xdp", name, l.Attrs().Name)}, nil
}

// logAhead says in the log who is before our programs, when that changes.
func (p *Path) logAhead(live []netlink.Link) error {
	names, err := allAhead(p.attacher, live)
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
