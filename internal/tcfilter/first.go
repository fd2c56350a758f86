package tcfilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// First is the place of a program that sees packets before the data plane does: by tcx
// (Linux 6.6) before all others, or as a filter of the interface's clsact. It stays there
// when the process ends.
type First struct {
	Place
	Program string // its name, of any version
}

// Open opens the program that is there, and says whether it is by tcx; nil if there is none.
func (f First) Open() (p *ebpf.Program, byTCX bool, err error) {
	found, err := link.QueryPrograms(link.QueryOptions{Target: f.Index, Attach: ebpf.AttachTCXIngress})
	if err == nil { // else the kernel has no tcx, or the interface is gone
		for _, at := range found.Programs {
			if p, err := f.openNamed(at.ID); p != nil || err != nil {
				return p, true, err
			}
		}
	}
	filter, err := f.Find()
	if err != nil || filter == nil {
		return nil, false, err
	}
	p, err = ebpf.NewProgramFromID(ebpf.ProgramID(filter.Id))
	if err != nil {
		return nil, false, fmt.Errorf("open the program there is: %w", err)
	}
	return p, false, nil
}

// openNamed opens a program if it is the one of this place.
func (f First) openNamed(id ebpf.ProgramID) (*ebpf.Program, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // it has gone meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("open the program there is: %w", err)
	}
	info, err := p.Info()
	if err == nil && info.Name == f.Program {
		return p, nil
	}
	return nil, errors.Join(err, p.Close())
}

// Put puts a program before all others, or in the place of an earlier one.
func (f First) Put(program *ebpf.Program) error {
	before, byTCX, err := f.Open()
	if err != nil {
		return err
	}
	options := link.RawAttachProgramOptions{Target: f.Index, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()}
	if before != nil {
		defer func() { _ = before.Close() }()
	}
	if byTCX {
		options.Anchor = link.ReplaceProgram(before)
	}
	err = link.RawAttachProgram(options)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return f.Attach(f.Prefix, program.FD())
	}
	if err == nil && before != nil && !byTCX { // an earlier version's
		_, err = f.Detach()
	}
	return err
}

// Remove removes the program, however it is attached.
func (f First) Remove() (there bool, err error) {
	p, byTCX, err := f.Open()
	if err != nil || p == nil {
		return false, err
	}
	if byTCX {
		err = link.RawDetachProgram(link.RawDetachProgramOptions{Target: f.Index, Program: p, Attach: ebpf.AttachTCXIngress})
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
			err = nil
		}
	} else {
		_, err = f.Detach()
	}
	return true, errors.Join(err, p.Close())
}

// IsThere reports whether the program is there.
func (f First) IsThere() (bool, error) {
	p, _, err := f.Open()
	if p == nil {
		return false, err
	}
	return true, errors.Join(err, p.Close())
}

// FirstAt is the place of a program at an interface.
type FirstAt func(h *netlink.Handle, index int) First

// IsThere reports whether the program is at an interface of the calling thread's network
// namespace, as far as can be seen.
func (at FirstAt) IsThere(index int) bool {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer h.Close()
	there, err := at(h, index).IsThere()
	return there && err == nil
}

// Sweep removes the program from all interfaces but some, given by index, and names those
// where it was. It looks at the network namespace of the calling thread. What names the
// program's work in errors.
func (at FirstAt) Sweep(what string, stay func(index int) bool) ([]string, error) {
	return Each(what, stay, func(h *netlink.Handle, index int) (bool, error) { return at(h, index).Remove() })
}

// Leftovers names the interfaces where the program is.
func (at FirstAt) Leftovers(what string) ([]string, error) {
	none := func(int) bool { return false }
	return Each(what, none, func(h *netlink.Handle, index int) (bool, error) { return at(h, index).IsThere() })
}
